"""Files to documents: plain text, Wikipedia extractors' `<doc>` blocks, rows with a text, and
parallel text, as a stream.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from plmctl.core.errors import ConfigError, DataError
from plmctl.text import layout, marks
from plmctl.text.corpus import load_documents
from plmctl.text.document import Document
from plmctl.text.inputs import Input, find_all, has_rows, read_lines, read_rows, take_text
from plmctl.text.layout import TextLayout
from plmctl.text.marks import Marks, count_characters, select_marks
from plmctl.text.parallel import pair_fields, pair_files

BUILTIN = (None, "builtin")  # paths that mean the text of `corpus.py`
PART = 1 << 22  # characters of a document held at once; a longer one comes in parts
Paths = str | Path | Iterable[str | Path] | None
_DOC = re.compile(r"<doc\b[^>]*>\s*")
_TITLE = re.compile(r'\btitle="([^"]*)"')


def documents(
    paths: Paths,
    *,
    field: str = "text",
    lines: str = "auto",
    spans: Sequence[str] = (),
    tags: Sequence[str] = (),
    layouts: dict[str, TextLayout] | None = None,
) -> Iterator[Document]:
    """The documents of files in order, or of the built-in corpus, with the marks that rows have in
    `spans` and `tags`.

    What is found for each file is put into `layouts`.
    """
    names = dict.fromkeys(spans, False) | dict.fromkeys(tags, True)
    if paths is None or paths in BUILTIN:
        if names:
            raise _no_rows("builtin", names)
        for text in load_documents():
            yield Document(text.paragraphs, f"builtin: {text.name}")
        return
    for given in find_all(paths):
        if names and not has_rows(given):
            raise _no_rows(given, names)
        found = decide(given, field=field, lines=lines)
        if layouts is not None:
            layouts[str(given)] = found
        yield from (
            _row_documents(given, field, names, found)
            if has_rows(given)
            else _text_documents(given, found)
        )


def read_pairs(
    paths: Paths, *, targets: Paths = None, fields: Sequence[str] = ()
) -> Iterator[Document]:
    """Parallel text: the lines of files beside those of `targets`, or two `fields` of each row."""
    if paths is None or paths in BUILTIN:
        raise ConfigError(
            "data.path",
            paths,
            "the built-in text is not parallel text",
            fix="data.path=<source file>",
        )
    if fields and targets is not None:
        raise ConfigError(
            "data.fields",
            list(fields),
            "either data.fields (one file) or data.target_path (two), not both",
        )
    found = find_all(paths)
    yield from (
        pair_fields(found, fields) if targets is None else pair_files(found, find_all(targets))
    )


def _no_rows(given: object, names: Iterable[str]) -> DataError:
    return DataError(
        f"data.spans and data.tags ({', '.join(names)}) need rows with fields",
        file=given,
        fix='.jsonl with lines like {"text": "...", "entity": [{"start": 3, "end": 9, "id": 17}]}',
    )


def decide(given: Input, *, field: str = "text", lines: str = "auto") -> TextLayout:
    """How the lines of a file are to be understood, from its first megabyte."""
    sample: list[str] = []
    size, blocks = 0, False
    if has_rows(given):
        for number, row in islice(read_rows(given, [field]), 200):
            text = _clean(take_text(row, field, given, number))
            sample += [*text.split("\n"), ""]
            size += len(text)
            if size > PART:
                break
        return layout.decide(sample, lines, blocks=True)
    for _, line in read_lines(given):  # type: ignore[arg-type]
        size += len(line) + 1
        blocks = blocks or _DOC.fullmatch(line) is not None
        sample.append(line)
        if size > 1 << 20:
            break
    return layout.decide(
        [line for line in sample if not (blocks and line.startswith(("<doc", "</doc>")))],
        lines,
        blocks=blocks,
    )


def _row_documents(
    given: Input, field: str, names: dict[str, bool], found: TextLayout
) -> Iterator[Document]:
    for number, row in read_rows(given, [field, *names]):
        text = take_text(row, field, given, number)
        marked = marks.read(row, text, names, file=given, line=number) if names else {}
        gather = _Gather(f"{given}:{number}", found, marked)
        for line in _clean(text).split("\n"):
            yield from gather.add(line.rstrip())
        yield from gather.close()


def _clean(text: str) -> str:
    return text.replace("\r\n", "\n")


def _text_documents(file: Input, found: TextLayout) -> Iterator[Document]:
    """Documents end at blank lines (`found.gap` of them), or where `</doc>` stands if they began
    with `<doc ...>`.
    """
    gather, blanks, inside, title = _Gather(f"{file}:1", found), 0, False, ""
    for number, line in read_lines(file):  # type: ignore[arg-type]
        if (line.startswith("<doc") and _DOC.fullmatch(line)) or line == "</doc>":
            yield from gather.close()
            inside = line != "</doc>"
            named = _TITLE.search(line)
            title = html.unescape(named[1]) if named else ""
            gather = _Gather(f"{file}:{number}", found)
        elif not line or line.isspace():
            blanks += 1
            if inside or blanks < found.gap:
                yield from gather.add("")
            elif blanks == found.gap:
                yield from gather.close()
            continue
        elif blanks >= found.gap and not inside:
            gather = _Gather(f"{file}:{number}", found)
            yield from gather.add(line)
        elif inside and title and html.unescape(line.strip()) == title:
            pass  # the title stands in the tag; as a line it is not a sentence of the text
        else:
            yield from gather.add(line)
        title = title if line.startswith("<doc") else ""
        blanks = 0
    yield from gather.close()


class _Gather:
    """Collects the lines of one document into paragraphs and hands out parts of it when they
    grow long.
    """

    def __init__(self, place: str, found: TextLayout, marked: Marks | None = None) -> None:
        self.place, self.layout, self.marks = place, found, marked or {}
        self.ink = 0  # of the parts that are handed out
        self.paragraphs: list[str] = []
        self.wrapped: list[str] = []
        self.size = 0
        self.identity: int | None = None

    def add(self, line: str) -> Iterator[Document]:
        self.size += len(line)
        if self.layout.lines == "wrapped" and line:
            self.wrapped.append(line.strip())
        elif line := line.strip() if self.layout.lines == "sentence" else line.rstrip():
            self.paragraphs.append(line)
        else:
            self._end_paragraph()
        if self.size > PART:
            yield from self._part()

    def close(self) -> Iterator[Document]:
        yield from self._part()
        self.identity = None

    def _part(self) -> Iterator[Document]:
        self._end_paragraph()
        if self.paragraphs:
            whole, marked = self.layout.lines == "sentence", self._marks() if self.marks else {}
            made = Document(
                self.paragraphs, self.place, whole=whole, identity=self.identity, marks=marked
            )
            self.identity, self.paragraphs, self.size = made.identity, [], 0
            yield made

    def _end_paragraph(self) -> None:
        if self.wrapped:
            self.paragraphs.append(layout.unwrap(self.wrapped))
            self.wrapped = []

    def _marks(self) -> Marks:
        begin = self.ink
        self.ink += sum(int(count_characters(paragraph)[-1]) for paragraph in self.paragraphs)
        return select_marks(self.marks, begin, self.ink)
