"""The input of cleaning in parts of about one size, by the names and sizes of its files alone.

A part is read by one process. It has several small files, a packed file, or a stretch of a large
one. A stretch ends between two documents, so that no size of parts changes a document.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from plmctl.cleaning.raw_text import ID, RawText
from plmctl.storage.unpacking import open_data
from plmctl.text.inputs import FileSpan, Input, find_all, read_lines
from plmctl.text.layout import TextLayout
from plmctl.text.reader import detect_layout, read_text_documents
from plmctl.text.tabular import (
    JSON,
    PACKED,
    has_rows,
    kind_of,
    named_rows,
    objects_in,
    read_rows,
    take_text,
)

UNPACKED = 4  # about how much larger a packed text is when it is unpacked
_BLOCK = re.compile(rb"^<doc\b", re.MULTILINE)
_LOOKED = 1 << 20  # bytes of a file in which blocks are looked for
_READ = 1 << 24


@dataclass(frozen=True)
class InputSpan:
    """A file, or some lines of one.

    Args:
        source: The file, or a data set.
        name: The file as records name it, from the folder that all files have in common.
        number: The number of the file among all.
        span: The lines; None: all.
        layout: The meaning of a line of a text file, if it is known.
    """

    source: Input
    name: str
    number: int
    span: FileSpan | None = None
    layout: TextLayout | None = None


@dataclass(frozen=True)
class InputPart:
    """The documents that one process reads, and that become one file.

    Args:
        number: The number of the part.
        spans: The files, in order.
        size: About how many bytes they have.
    """

    number: int
    spans: tuple[InputSpan, ...]
    size: int

    @property
    def name(self) -> str:
        """The stem of the file, as datatrove names it."""
        return f"{self.number:05}"


@dataclass(frozen=True)
class CleaningInput:
    """The text to clean.

    Args:
        paths: Files, folders, patterns or data sets.
        field: The field of a row that has the text.
        lines: The meaning of a line of a text file.
    """

    paths: tuple[str, ...]
    field: str = "text"
    lines: str = "auto"

    def files(self) -> list[tuple[Input, str]]:
        """All files with their names, sorted by name, so that the order of `paths` means
        nothing.
        """
        found = {_resolve(source): source for source in find_all(self.paths, "input")}
        real = [path for path in found if isinstance(path, Path)]
        common = os.path.commonpath([path.parent for path in real]) if real else ""
        named = [
            (source, os.path.relpath(path, common) if isinstance(path, Path) else str(source))
            for path, source in found.items()
        ]
        return sorted(named, key=lambda each: each[1])

    def describe(self) -> list[list[Any]]:
        """[name, bytes, time of the last change] of all files: other files are another job."""
        rows: list[list[Any]] = []
        for source, name in self.files():
            state = source.stat() if isinstance(source, Path) else None
            rows.append([name, state.st_size, state.st_mtime_ns] if state else [name])
        return rows

    def divide(self, size: int) -> list[InputPart]:
        """The parts, of about `size` bytes each."""
        parts: list[InputPart] = []
        spans: list[InputSpan] = []
        filled = 0

        def close() -> None:
            nonlocal filled
            if spans:
                parts.append(InputPart(len(parts), tuple(spans), filled))
                spans.clear()
                filled = 0

        for number, (source, name) in enumerate(self.files()):
            for span, length in self._cut(InputSpan(source, name, number), size):
                if filled + length > size:
                    close()
                spans.append(span)
                filled += length
        close()
        return parts

    def read(self, part: InputPart) -> Iterator[tuple[InputSpan, RawText]]:
        """The documents of a part, each with the span that it comes from."""
        for span in part.spans:
            rows = has_rows(span.source)
            for text in self._read_rows(span) if rows else self._read_text(span):
                yield span, text

    def _read_rows(self, span: InputSpan) -> Iterator[RawText]:
        source = span.source
        found: Iterable[tuple[int, dict[str, Any]]]
        if span.span is not None:
            lines = read_lines(source, cut=False, span=span.span)  # type: ignore[arg-type]
            found = objects_in(lines, source)
        elif isinstance(source, Path):
            found = named_rows(source, strict=True)
        else:
            found = read_rows(source, [self.field])
        for line, row in found:
            text = take_text(row, self.field, source, line, "field")
            name = row.get(ID)
            identity = f"{span.name}/{line - 1}" if name is None else str(name)
            yield RawText(text, identity, span.name, line, row, self.field)

    def _read_text(self, span: InputSpan) -> Iterator[RawText]:
        """Documents of a text file; each part of a very long one counts as a document."""
        layout = span.layout or detect_layout(span.source, lines=self.lines)
        further = 0
        for document in read_text_documents(span.source, layout, span.span):
            further = further + 1 if document.continues else 0
            line = int(document.place.rpartition(":")[2])
            identity = f"{span.name}/{line - 1}" + (f"#{further}" if further else "")
            yield RawText("\n".join(document.paragraphs), identity, span.name, line)

    def _cut(self, span: InputSpan, size: int) -> Iterator[tuple[InputSpan, int]]:
        """A file in stretches of at least `size` bytes, each with its length."""
        source = span.source
        if not isinstance(source, Path):
            yield span, 0
            return
        length, rows = source.stat().st_size, has_rows(source)
        packed = source.name.lower().endswith(PACKED)
        if packed or length <= size or (rows and kind_of(source) not in JSON):
            yield span, length * UNPACKED if packed else length
            return
        layout = None if rows else detect_layout(source, lines=self.lines)
        for piece in _divide_file(source, size, layout):
            inner = InputSpan(source, span.name, span.number, piece, layout)
            yield inner, piece.end - piece.begin


def _resolve(source: Input) -> Path | str:
    return source.resolve() if isinstance(source, Path) else str(source)


def _divide_file(file: Path, size: int, layout: TextLayout | None) -> Iterator[FileSpan]:
    """Stretches of a file that end between two rows, or between two documents of a text."""
    length = file.stat().st_size
    with open_data(file) as stream:
        blocks = layout is not None and _BLOCK.search(stream.read(_LOOKED)) is not None
        begin, line = 0, 1
        while begin < length:
            end = length
            if begin + size < length:
                end = _find_end(
                    stream, begin + size, None if layout is None else layout.gap, blocks
                )
            yield FileSpan(begin, end, line)
            line += _count_lines(stream, begin, end)
            begin = end


def _find_end(stream: BinaryIO, start: int, gap: int | None, blocks: bool) -> int:
    """The first byte behind `start` where a row or a document begins."""
    stream.seek(start)
    stream.readline()
    blanks = 0
    while gap is not None and (line := stream.readline()):
        blank = not line.strip()
        if line.startswith(b"<doc") if blocks else blanks >= gap and not blank:
            return stream.tell() - len(line)
        blanks = blanks + 1 if blank else 0
    return stream.tell()


def _count_lines(stream: BinaryIO, begin: int, end: int) -> int:
    stream.seek(begin)
    count, left = 0, end - begin
    while left and (data := stream.read(min(left, _READ))):
        count += data.count(b"\n")
        left -= len(data)
    return count


def match_files(files: Sequence[tuple[Input, str]], paths: Sequence[str], setting: str) -> set[int]:
    """The numbers of the files that `paths` name."""
    wanted = {_resolve(source) for source in find_all(paths, setting)}
    return {n for n, (source, _) in enumerate(files) if _resolve(source) in wanted}
