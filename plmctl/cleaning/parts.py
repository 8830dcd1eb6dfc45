"""The input of cleaning in parts of about one size, by the names and sizes of its files alone.

A part is read by one process. It has several small files, a packed file, or a stretch of a large
one. A stretch ends between two documents, so that no size of parts changes a document.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plmctl.cleaning.raw_text import ID, RawText
from plmctl.text.inputs import Input, find_all
from plmctl.text.pieces import Stretch, is_divisible, read_piece_rows
from plmctl.text.reader import find_document_at, read_documents
from plmctl.text.tabular import PACKED, has_rows, named_rows, read_rows, take_text

UNPACKED = 4  # about how much larger a packed text is when it is unpacked
_READ = 1 << 24


@dataclass(frozen=True)
class InputSpan:
    """A file, or some lines of one.

    Args:
        name: The file as records name it, from the folder that all files have in common.
        number: The number of the file among all.
        stretch: The bytes to read.
        first: The number of the first line.
    """

    name: str
    number: int
    stretch: Stretch
    first: int = 1


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
            for span, length in self._cut(InputSpan(name, number, Stretch(source)), size):
                if filled + length > size:
                    close()
                spans.append(span)
                filled += length
        close()
        return parts

    def read(self, part: InputPart) -> Iterator[tuple[InputSpan, RawText]]:
        """The documents of a part, each with the span that it comes from."""
        for span in part.spans:
            rows = has_rows(span.stretch.source)
            for text in self._read_rows(span) if rows else self._read_text(span):
                yield span, text

    def _read_rows(self, span: InputSpan) -> Iterator[RawText]:
        source = span.stretch.source
        found: Iterable[tuple[int, dict[str, Any]]]
        if span.stretch.end is not None:
            found = read_piece_rows(span.stretch, [self.field], span.first)
        elif isinstance(source, Path):
            found = named_rows(source, strict=True)  # with all columns
        else:
            found = read_rows(source, [self.field])
        for line, row in found:
            text = take_text(row, self.field, source, line, "field")
            name = row.get(ID)
            identity = f"{span.name}/{line - 1}" if name is None else str(name)
            yield RawText(text, identity, span.name, line, row, self.field)

    def _read_text(self, span: InputSpan) -> Iterator[RawText]:
        """Documents of a text file; each part of a very long one counts as a document."""
        further, source = 0, str(span.stretch.source)
        for document in read_documents(source, lines=self.lines, pieces=[span.stretch]):
            further = further + 1 if document.continues else 0
            line = int(document.place.rpartition(":")[2]) + span.first - 1
            identity = f"{span.name}/{line - 1}" + (f"#{further}" if further else "")
            yield RawText("\n".join(document.paragraphs), identity, span.name, line)

    def _cut(self, span: InputSpan, size: int) -> Iterator[tuple[InputSpan, int]]:
        """A file in stretches of at least `size` bytes, each with its length."""
        source = span.stretch.source
        length = source.stat().st_size if isinstance(source, Path) else 0
        if not isinstance(source, Path) or length <= size or not is_divisible(source):
            packed = str(source).lower().endswith(PACKED)
            yield span, length * UNPACKED if packed else length
            return
        begin, first = 0, 1
        while begin < length:
            end = length
            if begin + size < length:
                end = find_document_at(source, begin + size, lines=self.lines)
            yield InputSpan(span.name, span.number, Stretch(source, begin, end), first), end - begin
            first += _count_lines(source, begin, end)
            begin = end


def _resolve(source: Input) -> Path | str:
    return source.resolve() if isinstance(source, Path) else str(source)


def _count_lines(file: Path, begin: int, end: int) -> int:
    with file.open("rb") as stream:
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
