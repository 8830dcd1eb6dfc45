"""From files to a stream of documents: plain text, `<doc>` blocks of Wikipedia extractors, rows
with a text, and parallel text.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import cast

from plmctl.core.errors import ConfigError, DataError
from plmctl.text import layout, marks
from plmctl.text.corpus import load_documents
from plmctl.text.document import Document
from plmctl.text.inputs import Input, find_all, read_lines
from plmctl.text.layout import RUNNING, TextLayout
from plmctl.text.marks import Marks, count_characters, select_marks
from plmctl.text.parallel import pair_fields, pair_files
from plmctl.text.pieces import (
    DOC,
    Stretch,
    find_document,
    find_row,
    number_lines,
    read_piece_lines,
    read_piece_rows,
)
from plmctl.text.running import Span, read_running
from plmctl.text.tabular import has_rows, read_rows, take_text

BUILTIN = (None, "builtin")  # paths that mean the text of `corpus.py`
PART = 1 << 22  # characters of a document in memory; a longer document comes in parts
Paths = str | Path | Iterable[str | Path] | None
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_TITLE = re.compile(r'\btitle="([^"]*)"')


def read_documents(
    paths: Paths,
    *,
    field: str = "text",
    lines: str = "auto",
    spans: Sequence[str] = (),
    tags: Sequence[str] = (),
    layouts: dict[str, TextLayout] | None = None,
    span: Span | None = None,
    known: Mapping[str, int] | None = None,
    pieces: Sequence[Stretch] | None = None,
) -> Iterator[Document]:
    """Yield the documents of files in order, or of the built-in corpus.

    Args:
        paths: files, folders, patterns, data sets (`hf:...`); None or "builtin" for the built-in
            text.
        field: the field of a row that holds the text.
        lines: The kind of a line of a text file: one of `layout.KINDS`.
        spans, tags: fields of a row with marks (`marks.py`).
        layouts: receives the layout of each file.
        span: The bytes of a running text to read.
        known: The number of entities, for fields whose ids mean entities outside of the text.
        pieces: The pieces of the files to read; None: all of each.
    """
    names = dict.fromkeys(spans, False) | dict.fromkeys(tags, True)
    if paths is None or paths in BUILTIN:
        if names:
            raise _no_rows("builtin", names)
        for text in load_documents() if pieces is None else ():
            yield Document(text.paragraphs, f"builtin: {text.name}")
        return
    for piece in map(Stretch, find_all(paths)) if pieces is None else pieces:
        source = piece.source
        if names and not has_rows(source):
            raise _no_rows(source, names)
        layout_of_file = detect_layout(source, field=field, lines=lines)
        if layouts is not None:
            layouts[str(source)] = layout_of_file
        if lines == RUNNING and isinstance(source, Path) and not has_rows(source):
            yield from read_running(source, span)
            continue
        if span is not None:
            allowed = f"null: {source} has rows, and parts by bytes are those of a text file"
            raise ConfigError("data.bytes", list(span), allowed, fix="data.bytes=null")
        read = (
            partial(_row_documents, piece, field, names, layout_of_file, known)
            if has_rows(source)
            else partial(_text_documents, piece, layout_of_file)
        )
        yield from number_lines(piece, read)


def read_sentences(paths: Paths, *, field: str = "text", lines: str = "auto") -> Iterator[str]:
    """Yield the sentences of the documents of files; arguments as of `read_documents`."""
    for document in read_documents(paths, field=field, lines=lines):
        yield from document.sentences


def read_pairs(
    paths: Paths,
    *,
    targets: Paths = None,
    fields: Sequence[str] = (),
    pieces: Sequence[Stretch] | None = None,
) -> Iterator[Document]:
    """Yield parallel text: the lines of files and of `targets`, or two `fields` of each row of the
    files, or of `pieces` of them.
    """
    if paths is None or paths in BUILTIN:
        allowed = "the built-in text is not parallel text"
        raise ConfigError("data.path", paths, allowed, fix="data.path=<source file>")
    if fields and targets is not None:
        allowed = "either data.fields (one file) or data.target_path (two), not both"
        raise ConfigError("data.fields", list(fields), allowed)
    if targets is None:
        yield from pair_fields(map(Stretch, find_all(paths)) if pieces is None else pieces, fields)
        return
    sources = find_all(paths, empty=True) if pieces is None else [piece.source for piece in pieces]
    yield from pair_files(sources, find_all(targets, empty=True) if sources else [])


def _no_rows(source: object, names: Iterable[str]) -> DataError:
    problem = f"data.spans and data.tags ({', '.join(names)}) need rows with fields"
    fix = '.jsonl with lines like {"text": "...", "entity": [{"start": 3, "end": 9, "id": 17}]}'
    return DataError(problem, file=source, fix=fix)


def detect_layout(source: Input, *, field: str = "text", lines: str = "auto") -> TextLayout:
    """Detect how the lines of a file are to be read, from its first megabyte."""
    sample: list[str] = []
    size = 0
    if has_rows(source):
        for number, row in islice(read_rows(source, [field]), 200):
            text = _clean(take_text(row, field, source, number))
            sample += [*text.split("\n"), ""]
            size += len(text)
            if size > PART:
                break
        return layout.detect_layout(sample, lines, blocks=True, rows=True)
    sample, blocks = _read_beginning(source)
    return layout.detect_layout(
        [line for line in sample if not (blocks and line.startswith(("<doc", "</doc>")))],
        lines,
        blocks=blocks,
    )


def _read_beginning(source: Input) -> tuple[list[str], bool]:
    """The lines of the first megabyte of a text, and whether a `<doc ...>` is among them."""
    sample: list[str] = []
    size = 0
    for _, line in read_lines(source):  # type: ignore[arg-type]
        size += len(line) + 1
        sample.append(line)
        if size > 1 << 20:
            break
    return sample, any(line.startswith("<doc") and DOC.fullmatch(line) for line in sample)


def find_document_at(file: Path, byte: int, *, lines: str = "auto") -> int:
    """The first byte, from `byte` on, at which a document of a file begins; its size without one.

    Args:
        file: A file that `pieces.is_divisible`.
        byte: Any byte of it.
        lines: The kind of a line, as for `read_documents`.
    """
    if has_rows(file):
        return find_row(file, byte)
    gap = detect_layout(file, lines=lines).gap
    return find_document(file, byte, gap=gap, blocks=_read_beginning(file)[1])


def _row_documents(
    piece: Stretch,
    field: str,
    names: dict[str, bool],
    layout_of_file: TextLayout,
    known: Mapping[str, int] | None,
    first: int,
) -> Iterator[Document]:
    source = piece.source
    for number, row in read_piece_rows(piece, [field, *names], first):
        text = take_text(row, field, source, number)
        marked = (
            marks.read(row, text, names, file=source, line=number, known=known) if names else {}
        )
        yield from split_row(text, f"{source}:{number}", layout_of_file, marked)


def split_row(
    text: str, place: str, layout_of_row: TextLayout, marked: Marks | None = None
) -> Iterator[Document]:
    """The document that is the text of a row; a very long one in parts.

    Args:
        place: Its file and line, for messages.
        layout_of_row: The reading of its lines.
    """
    if layout_of_row.lines == RUNNING:
        if text:
            yield Document(_LINE.findall(text), place, running=True, marks=marked)
        return
    collector = _Collector(place, layout_of_row, marked)
    for line in _clean(text).split("\n"):
        yield from collector.add(line.rstrip())
    yield from collector.close()


def _clean(text: str) -> str:
    return text.replace("\r\n", "\n")


def _text_documents(piece: Stretch, layout_of_file: TextLayout, first: int) -> Iterator[Document]:
    """Documents end at blank lines (`gap` of them), or, where one began with `<doc ...>`, at
    `</doc>`.
    """
    file = piece.source
    collector, blanks, inside, title = _Collector(f"{file}:1", layout_of_file), 0, False, ""
    for number, line in read_piece_lines(piece, first=first):
        if (line.startswith("<doc") and DOC.fullmatch(line)) or line == "</doc>":
            yield from collector.close()
            inside = line != "</doc>"
            named = _TITLE.search(line)
            title = html.unescape(named[1]) if named else ""
            collector = _Collector(f"{file}:{number}", layout_of_file)
        elif not line or line.isspace():
            blanks += 1
            if inside or blanks < layout_of_file.gap:
                yield from collector.add("")
            elif blanks == layout_of_file.gap:
                yield from collector.close()
            continue
        elif blanks >= layout_of_file.gap and not inside:
            collector = _Collector(f"{file}:{number}", layout_of_file)
            yield from collector.add(line)
        elif inside and title and html.unescape(line.strip()) == title:
            pass  # the title stands in the tag; as a line it is not a sentence of the text
        else:
            yield from collector.add(line)
        title = title if line.startswith("<doc") else ""
        blanks = 0
    if inside and piece.end is not None:
        _refuse_open_block(piece)
    yield from collector.close()


def _refuse_open_block(piece: Stretch) -> None:
    """DataError where a piece ends inside of a `<doc ...>` that is not closed there."""
    file = cast(Path, piece.source)
    with file.open("rb") as stream:
        stream.seek(piece.end or 0)
        following = stream.readline(1 << 16).decode("utf-8", "replace")
    if following and not DOC.fullmatch(following.rstrip("\r\n")):
        what = "documents end at blank lines first, and at </doc> later on: it is read in one part"
        raise DataError(what, file=file, fix="leave parts= out, or one kind of documents a file")


class _Collector:
    """Collects the lines of one document into paragraphs, and yields a part of it whenever it has
    grown long.
    """

    def __init__(self, place: str, layout_of_file: TextLayout, marked: Marks | None = None) -> None:
        self.place, self.layout, self.marks = place, layout_of_file, marked or {}
        self.visible = 0  # characters that are not white space, of the parts before this one
        self.paragraphs: list[str] = []
        self.wrapped: list[str] = []
        self.block = False  # the line that waits stands in verse or code
        self.size = self.joined = 0
        self.identity: int | None = None

    def add(self, line: str) -> Iterator[Document]:
        """Add a line; yield a part of the document if it is long enough."""
        self.size += len(line)
        if self.layout.lines == "wrapped" and line:
            self._add_wrapped(line.rstrip())
        elif line := line.strip() if self.layout.lines == "sentence" else line.rstrip():
            self.paragraphs.append(line)
        else:
            self._end_paragraph()
        if self.size > PART:
            yield from self._take_part()

    def _add_wrapped(self, line: str) -> None:
        """An indented line begins a paragraph; one below another is verse or code, and stands
        alone.
        """
        indented = layout.is_indented(line)
        below = indented and len(self.wrapped) == 1 and layout.is_indented(self.wrapped[0])
        if indented or self.block:
            self._end_paragraph()
        self.wrapped.append(line)
        self.block = below

    def close(self) -> Iterator[Document]:
        """Yield the rest of the document."""
        yield from self._take_part()
        self.identity = None

    def _take_part(self) -> Iterator[Document]:
        self._end_paragraph()
        if self.paragraphs:
            complete = self.layout.lines == "sentence"
            marked = self._take_marks() if self.marks else {}
            part = Document(
                self.paragraphs,
                self.place,
                whole=complete,
                identity=self.identity,
                marks=marked,
                joined=self.joined,
            )
            self.identity, self.paragraphs, self.size, self.joined = part.identity, [], 0, 0
            yield part

    def _end_paragraph(self) -> None:
        if self.wrapped:
            self.paragraphs.append(layout.unwrap(self.wrapped))
            self.joined += len(self.wrapped) - 1
            self.wrapped, self.block = [], False

    def _take_marks(self) -> Marks:
        begin = self.visible
        self.visible += sum(int(count_characters(paragraph)[-1]) for paragraph in self.paragraphs)
        return select_marks(self.marks, begin, self.visible)
