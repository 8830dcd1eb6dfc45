"""Files of texts with entities by their characters, as tools of annotation read and write them."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from plmctl.core.errors import DataError
from plmctl.core.terminal import counted
from plmctl.storage.reading import parse_json, parse_json_at
from plmctl.tasks.readers import files
from plmctl.tasks.readers.span_rows import (
    FIELDS,
    SHOWN,
    SpannedText,
    TextSpan,
    count_units,
    find_marked,
)
from plmctl.text.inputs import need_lines
from plmctl.text.tabular import kind_of

TEXTS, MARKS, LABELS = ".txt", ".ann", "annotation.conf"  # the files of brat
# fields of rows that only say what the text and its entities are, and whose work they are
OF_ENTITIES = frozenset({*FIELDS, "data", "annotations", "predictions", "tokens", "relations"})
OF_ENTITIES |= {"words", "places", "source", "guess", "tag_probabilities"}
WRONG = 10  # wrong rows that an error lists
_SPACE = re.compile(r"\s+")


class NamedText(NamedTuple):
    """A text with its entities, its file and line, and other fields of its row, such as `id`."""

    text: str
    spans: list[TextSpan]
    place: str
    more: Mapping[str, Any] = {}


@dataclass
class SpanNotes:
    """Counts of read texts.

    Args:
        labels: {label: entities}.
        overlapped: Entities that share a character with one before them.
        unmarked: Texts that say nothing of entities.
        left: {reason: marks of brat that are no entities of one piece}.
    """

    texts: int = 0
    labels: Counter[str] = field(default_factory=Counter)
    overlapped: int = 0
    unmarked: int = 0
    left: Counter[str] = field(default_factory=Counter)

    def add(self, marked: SpannedText) -> None:
        """Count a text."""
        spans = sorted(marked.spans or [])
        ends = itertools.accumulate((span.end for span in spans), max)
        self.texts += 1
        self.unmarked += marked.spans is None
        self.labels.update(span.kind for span in spans)
        self.overlapped += sum(span.start < end for span, end in zip(spans[1:], ends, strict=False))

    def describe(self) -> Iterator[str]:
        """A line for each remark."""
        if self.overlapped:
            verb = "overlaps" if self.overlapped == 1 else "overlap"
            yield f"{counted(self.overlapped, 'entity')} {verb} another"
        if self.unmarked:
            texts = counted(self.unmarked, "text")
            yield f"{texts} without a list of entities: nobody has marked any there"
        for reason, count in self.left.items():
            yield f"left out: {count:,} {reason}"


def json_rows(file: Path) -> Iterator[tuple[int, Any]]:
    """(its line, the value) of every line of JSON; of one list its values, at line 0."""
    if kind_of(file) == ".json" and files.read_start(file).startswith("["):
        content = None
        with contextlib.suppress(ValueError):
            content = parse_json(files.read_text(file))
        if isinstance(content, list) and all(isinstance(row, dict | list) for row in content):
            yield from ((0, row) for row in content)
            return
    for number, line in need_lines(file):
        if line.strip():
            yield number, parse_json_at(line, file=file, line=number)


def read_spans(
    path: Path, notes: SpanNotes, *, text: str = "text", entities: str | None = None
) -> Iterator[NamedText]:
    """The texts of a file of JSON, or of a folder of brat.

    Args:
        notes: Receives the counts.
        text: The field of the text.
        entities: The field of the entities; None: the first of the known ones.

    Raises:
        DataError: A row has another layout, or an entity is no part of its text.
    """
    wrong: list[DataError] = []
    rows = (
        _read_brat(path, notes, wrong) if path.is_dir() else _read_json(path, text, entities, wrong)
    )
    for place, marked, more in rows:
        notes.add(marked)
        yield NamedText(marked.text, sorted(marked.spans or []), place, more)
    if wrong:
        raise _join_wrong(wrong, path)


_Read = Iterator[tuple[str, SpannedText, Mapping[str, Any]]]  # file and line, text, other fields


def _join_wrong(wrong: Sequence[DataError], path: Path) -> DataError:
    """One error of all wrong rows, with the first ones and the fix of the first."""
    if len(wrong) == 1:
        return wrong[0]
    shown = [str(each).partition("\n")[0] for each in wrong[:WRONG]]
    more = [f"and {len(wrong) - WRONG:,} more"] if len(wrong) > WRONG else []
    listed = "\n".join(f"- {line}" for line in [*shown, *more])
    fix = str(wrong[0]).partition("\n  fix: ")[2]
    return DataError(f"{len(wrong):,} rows are wrong:\n{listed}", file=path, fix=fix)


def _read_json(file: Path, text: str, entities: str | None, wrong: list[DataError]) -> _Read:
    for count, (number, row) in enumerate(json_rows(file), 1):
        marked, what = None, f"a row has no text in the field {text}"
        try:
            marked = find_marked(row, text, entities)
        except ValueError as error:
            what = str(error)
        if marked is None:
            wrong.append(DataError(what, file=file, line=number or None, fix=SHOWN))
            continue
        place = f"{file}:{number}" if number else f"{file}, number {count}"
        yield place, marked, _find_more(row, {text, *([entities] if entities else ())})


def _find_more(row: Any, own: set[str]) -> dict[str, Any]:
    """The fields of a row that say nothing of its text and entities; of Label Studio those of its
    data, too.
    """
    if not isinstance(row, Mapping):
        return {}
    read = {*own, *OF_ENTITIES}
    inner = row["data"] if isinstance(row.get("data"), Mapping) else {}
    found = {**row, **{name: value for name, value in inner.items() if name not in own}}
    return {name: value for name, value in found.items() if name not in read}


def _read_brat(folder: Path, notes: SpanNotes, wrong: list[DataError]) -> _Read:
    """The texts of brat (Stenetorp et al., 2012, EACL), each a .txt with its .ann next to it."""
    texts = sorted(folder.glob(f"*{TEXTS}"))
    if not texts:
        raise DataError(
            f"no {TEXTS} files of brat", file=folder, fix="name a file, or their folder"
        )
    for file in texts:
        text = file.read_bytes().decode("utf-8-sig")  # its ends of lines count as they stand
        marks = file.with_suffix(MARKS)
        spans: list[TextSpan] | None = None
        try:
            spans = list(_read_marks(marks, text, notes)) if marks.exists() else None
        except DataError as error:
            wrong.append(error)
            continue
        yield str(file), SpannedText(text, spans), {"id": file.stem}


def _read_marks(file: Path, text: str, notes: SpanNotes) -> Iterator[TextSpan]:
    """The entities of an .ann: `T1<tab>PER 0 4<tab>Anna`, or `PER 0 4;5 9` in pieces. Pieces with
    white space alone between them are one, as brat cuts at ends of lines.
    """
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        if not line.startswith("T"):
            if line.strip():
                notes.left["relations, events and notes of brat"] += 1
            continue
        cells = line.split("\t")
        kind, _, places = cells[1].partition(" ") if len(cells) > 1 else ("", "", "")
        pieces = [piece.split() for piece in places.split(";")]
        if not all(len(piece) == 2 and all(map(str.isdigit, piece)) for piece in pieces):
            fix = "T1<tab>PER 0 4<tab>Anna"
            raise DataError(f"{line[:60]!r} is no entity", file=file, line=number, fix=fix)
        bounds = [(int(start), int(end)) for start, end in pieces]
        start, end = bounds[0][0], bounds[-1][1]
        if not 0 <= start < end <= len(text):
            what = f"[{start}, {end}) is no part of a text of {len(text):,} characters"
            fix = f"correct {file.name}, or take the {TEXTS} that it was made for"
            raise DataError(what, file=file, line=number, fix=fix)
        if any(text[a:b].strip() for (_, a), (b, _) in itertools.pairwise(bounds)):
            notes.left["entities in pieces with other words between them"] += 1
            continue
        said = " ".join(cells[2].split()) if len(cells) > 2 else ""
        if said and said != " ".join(text[start:end].split()):
            what = f"[{start}, {end}) is {text[start:end]!r}, not {cells[2]!r}"
            fix = f"take the {TEXTS} that {file.name} was made for"
            raise DataError(what, file=file, line=number, fix=fix)
        yield TextSpan(start, end, kind)


def _spell_studio(each: NamedText, number: int, key: str) -> dict[str, Any]:
    """A task of Label Studio, whose offsets count units of UTF-16."""
    result = []
    for count, (start, end, kind) in enumerate(each.spans):
        first, last = count_units(each.text[:start]), count_units(each.text[:end])
        value = {"start": first, "end": last, "text": each.text[start:end], "labels": [kind]}
        about = {"id": f"{number}-{count}", "from_name": "label", "to_name": "text"}
        result.append({**about, "type": "labels", "value": value})
    return {"data": {**each.more, "text": each.text}, key: [{"result": result}]}


def _spell_row(each: NamedText, field: str, entities: list[Any]) -> dict[str, Any]:
    return {**each.more, "text": each.text, field: entities}


def _objects(each: NamedText) -> list[dict[str, Any]]:
    return [{"start": start, "end": end, "label": kind} for start, end, kind in each.spans]


# rows of the tools, by their names; brat has a folder
LAYOUTS: Mapping[str, Callable[[NamedText, int], Any]] = {
    "doccano": lambda each, number: _spell_row(each, "label", [list(s) for s in each.spans]),
    "prodigy": lambda each, number: _spell_row(each, "spans", _objects(each)),
    "spacy": lambda each, number: _spell_row(each, "entities", [list(s) for s in each.spans]),
    "label_studio": lambda each, number: _spell_studio(each, number, "annotations"),
    "label_studio_guesses": lambda each, number: _spell_studio(each, number, "predictions"),
}


def spell_file(name: str, texts: Iterable[NamedText], layout: str) -> Iterator[str]:
    """The pieces of a file of JSON lines, or of one list where it is a .json."""
    rows = (LAYOUTS[layout](each, number) for number, each in enumerate(texts))
    lines = (json.dumps(row, ensure_ascii=False) for row in rows)
    if kind_of(Path(name)) != ".json":
        yield from (f"{line}\n" for line in lines)
        return
    yield "[\n"
    yield from (f",\n{line}" if number else line for number, line in enumerate(lines))
    yield "\n]\n"


def spell_brat(texts: Sequence[NamedText], labels: Iterable[str]) -> Iterator[tuple[str, str]]:
    """(name, content) of the files of a folder of brat; DataError for a label with white space."""
    named = list(labels)
    if bad := [label for label in named if _SPACE.search(label)]:
        where = next(t.place for t in texts if any(span.kind == bad[0] for span in t.spans))
        fix = f"name it {_SPACE.sub('_', bad[0])} there"
        raise DataError(f"brat has no labels with spaces, such as {bad[0]!r}", file=where, fix=fix)
    sections = ("[relations]", "[events]", "[attributes]")
    yield LABELS, "\n".join(["[entities]", *named, *sections]) + "\n"
    width = max(5, len(str(len(texts))))
    for number, each in enumerate(texts):
        yield f"{number:0{width}}{TEXTS}", each.text
        marks = (
            f"T{count}\t{_spell_mark(s, each.text)}\n" for count, s in enumerate(each.spans, 1)
        )
        yield f"{number:0{width}}{MARKS}", "".join(marks)


def _spell_mark(span: TextSpan, text: str) -> str:
    """An entity; at the ends of lines it is cut."""
    found = re.finditer(r"[^\r\n]+", text[span.start : span.end])
    pieces = [(span.start + part.start(), span.start + part.end()) for part in found]
    places = ";".join(f"{start} {end}" for start, end in pieces)
    return f"{span.kind} {places}\t{' '.join(text[start:end] for start, end in pieces)}"
