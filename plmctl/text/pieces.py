"""Pieces of text files that begin and end between two documents, so that several processes read a
file, each its own piece.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple, TypeVar, cast

from plmctl.core.errors import DataError
from plmctl.text.inputs import Input, read_lines, read_stream
from plmctl.text.row_stream import count_lines
from plmctl.text.tabular import JSON, OBJECTS, PACKED, Row, kind_of, objects_in, read_rows

DOC = re.compile(r"<doc\b[^>]*>\s*")
_CHUNK = 1 << 20  # bytes of a line held at once
_BOM = b"\xef\xbb\xbf"
T = TypeVar("T")


class Stretch(NamedTuple):
    """A file, or its bytes from the beginning of a document to the end of one."""

    source: Input
    begin: int = 0
    end: int | None = None  # None: the whole file


def is_divisible(source: Input) -> bool:
    """Whether the documents of a file can be found from any byte of it on: in JSON lines and plain
    text.
    """
    if not isinstance(source, Path) or source.name.lower().endswith(PACKED):
        return False
    kind = kind_of(source)
    return kind in JSON or kind not in (*OBJECTS, ".csv", ".tsv")


def find_row(file: Path, byte: int) -> int:
    """The first byte, from `byte` on, at which a line begins; the size of the file without one."""
    with file.open("rb") as stream:
        return _skip_line(stream, byte)


def find_document(file: Path, byte: int, *, gap: int, blocks: bool) -> int:
    """The first byte, from `byte` on, of a line that surely begins a document of a text; the size
    of the file without one.

    Args:
        gap: The number of blank lines that end a document.
        blocks: Documents begin with `<doc ...>`, and blank lines end none.
    """
    if byte == 0:
        return 0
    with file.open("rb") as stream:
        place, blanks, whole = _skip_line(stream, byte), 0, True
        while chunk := stream.readline(_CHUNK):
            if whole:
                text = chunk.removeprefix(_BOM).decode("utf-8", "replace").rstrip("\r\n")
                blank = not text or text.isspace()
                if (text.startswith("<doc") and DOC.fullmatch(text)) or (
                    not blank and blanks >= gap and not blocks
                ):
                    return place
                blanks = blanks + 1 if blank else 0
            place, whole = place + len(chunk), chunk.endswith(b"\n")
    return place


def read_piece_lines(
    piece: Stretch, *, first: int = 1, cut: bool = True
) -> Iterator[tuple[int, str]]:
    """`read_lines` of a piece.

    Args:
        cut: A very long line comes in parts; else it is refused.
    """
    assert isinstance(piece.source, Path)
    if piece.end is None:
        yield from read_lines(piece.source, cut=cut)
        return
    try:
        with piece.source.open("rb") as stream:
            stream.seek(piece.begin)
            bounded = cast(BinaryIO, _Bounded(stream, piece.end - piece.begin))
            yield from read_stream(bounded, piece.source, cut=cut, first=first)
    except OSError as error:
        what = f"cannot be read ({error.strerror})"
        raise DataError(what, file=piece.source, fix="check the right to read it") from error


def read_piece_rows(piece: Stretch, fields: Sequence[str], first: int = 1) -> Iterator[Row]:
    """`read_rows` of a piece, whose first line has the number `first`."""
    if piece.end is None:
        return read_rows(piece.source, fields)
    return objects_in(read_piece_lines(piece, first=first, cut=False), piece.source)


def number_lines(piece: Stretch, read: Callable[[int], Iterator[T]]) -> Iterator[T]:
    """The values of `read(1)`. If it raises DataError, the lines before the piece are counted.
    `read` then raises it again, with the numbers that lines have in the file.
    """
    try:
        yield from read(1)
    except DataError:
        if not piece.begin or not isinstance(piece.source, Path):
            raise
        for _ in read(count_lines(piece.source, piece.begin)):
            pass
        raise


class _Bounded:
    """The lines of so many bytes of a stream."""

    def __init__(self, stream: BinaryIO, left: int) -> None:
        self._stream, self._left = stream, left

    def readline(self, limit: int) -> bytes:
        line = self._stream.readline(min(limit, self._left))
        self._left -= len(line)
        return line


def _skip_line(stream: BinaryIO, byte: int) -> int:
    """Go to the first line that begins at `byte` or behind it; the byte where it begins."""
    if byte:
        stream.seek(byte - 1)
        while (chunk := stream.readline(_CHUNK)) and not chunk.endswith(b"\n"):
            pass
    return stream.tell()
