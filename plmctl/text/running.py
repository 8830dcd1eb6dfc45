"""Running text: a file as it is, without documents, sentences or paragraphs in it, as benchmarks of
language models read it (Merity et al., 2017; Dai et al., 2019).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from plmctl.core.errors import ConfigError, DataError
from plmctl.text.document import Document
from plmctl.text.inputs import open_unpacked
from plmctl.text.layout import RUNNING
from plmctl.text.undecodable import decode

PIECE = 1 << 20  # bytes of a line held at once
PART = 1 << 22  # characters of a document held at once

Span = tuple[int, int]  # the first byte of a file that is read, and the first that is not


def check_span(span: Sequence[int] | None, lines: str, *, setting: str) -> Span | None:
    """The bytes to be read; ConfigError unless they rise and the text is running text."""
    if span is None:
        return None
    if lines != RUNNING:
        allowed = f"null where data.lines={lines}: a part can be read of running text alone"
        raise ConfigError(setting, list(span), allowed, fix="data.lines=running")
    first, *last = span
    if len(last) != 1 or first >= last[0]:
        allowed = "two numbers: the first byte that is read, and the first that is not"
        rising = sorted(set(span))
        shown = rising if len(rising) == len(span) == 2 else [0, 90_000_000]
        fix = f"{setting}=[{shown[0]},{shown[1]}]"
        raise ConfigError(setting, list(span), allowed, fix=fix)
    return first, last[0]


def read_running(file: Path, span: Span | None = None) -> Iterator[Document]:
    """A file as one document, in parts of bounded size."""
    identity: int | None = None
    pieces: list[str] = []
    size = 0
    for piece in _read_pieces(file, span):
        pieces.append(piece)
        size += len(piece)
        if size > PART:
            part = Document(pieces, f"{file}:1", running=True, identity=identity)
            yield part
            identity, pieces, size = part.identity, [], 0
    if pieces:
        yield Document(pieces, f"{file}:1", running=True, identity=identity)


def join_parts(documents: Iterable[Document]) -> Iterator[list[str]]:
    """The pieces of each whole document."""
    pieces: list[str] = []
    for document in documents:
        if pieces and not document.continues:
            yield pieces
            pieces = []
        pieces += document.segments
    if pieces:
        yield pieces


def _read_pieces(file: Path, span: Span | None) -> Iterator[str]:
    """The text line by line, each with its line break; a very long line in pieces that end at
    spaces. Characters that `span` cuts are left out.
    """
    first, last = span or (0, None)
    try:
        with open_unpacked(file) as stream:
            skipped, rest = _skip(stream, first), b""
            begin = skipped
            left = None if last is None else last - first
            while chunk := stream.readline(PIECE if left is None else min(PIECE, left)):
                left = None if left is None else left - len(chunk)
                line, rest = rest + chunk, b""
                if not line.endswith(b"\n"):
                    end = line.rfind(b" ") + 1 if left != 0 and len(chunk) == PIECE else 0
                    end = end or _last_character(line)
                    line, rest = line[:end], line[end:] if left != 0 else b""
                if skipped and first:  # the character before the first byte goes on
                    line, skipped = line[_first_character(line) :], 0
                yield _decode(line, file)
            if rest:
                yield _decode(rest, file)
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror})", file=file) from error
    if left:
        size = begin + (last or 0) - first - left
        problem = f"the file has {size:,} bytes, and data.bytes asks for those up to {last:,}"
        smaller = f"data.bytes=[{first},{size}]" if first < size else "smaller numbers"
        raise DataError(problem, file=file, fix=f"{smaller}, or data.bytes=null: the whole file")


def _skip(stream: object, count: int) -> int:
    """Read so many bytes and forget them."""
    left = count
    while left and (block := stream.read(min(left, 1 << 24))):  # type: ignore[attr-defined]
        left -= len(block)
    return count - left


def _first_character(line: bytes) -> int:
    """The first offset in `line` where a UTF-8 character begins."""
    none = len(line) if len(line) < 4 else 0
    return next((i for i, byte in enumerate(line[:4]) if byte & 0xC0 != 0x80), none)


def _last_character(line: bytes) -> int:
    """The last offset in `line` where a UTF-8 character may end."""
    for back in range(1, min(4, len(line)) + 1):
        byte = line[-back]
        if byte & 0xC0 != 0x80:
            size = 1 if byte < 0x80 else 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return len(line) - back if size > back else len(line)
    return len(line)


def _decode(line: bytes, file: Path) -> str:
    return decode(line, file=file, number=1)
