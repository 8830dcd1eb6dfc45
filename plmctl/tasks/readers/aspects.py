"""Aspects of sentences and their polarity: XML of SemEval-2014 task 4 (Pontiki et al., 2014), and
tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from plmctl.core.errors import DataError, nearest
from plmctl.core.parts import part_of
from plmctl.storage.xml_tree import Element, parse_xml
from plmctl.tasks.readers import files
from plmctl.tasks.readers.column_settings import Columns
from plmctl.tasks.readers.split_files import SplitFiles
from plmctl.tasks.readers.tables import Table
from plmctl.tasks.record import Example
from plmctl.text.tabular import kind_of

XML = ".xml"
CONFLICT = "conflict"  # a polarity: both good and bad
POLARITIES = ("positive", "negative", "neutral", CONFLICT)  # the polarities of the XML
SHOWN = (
    '<sentences><sentence id="1"><text>The rice is good</text><aspectTerms><aspectTerm'
    ' term="rice" polarity="positive" from="4" to="8"/></aspectTerms></sentence></sentences>'
)
Aspects = Literal["terms", "categories"]


@dataclass(frozen=True)
class Aspect:
    """A judged aspect of a text: its name, its characters [start, end) where it has some, its
    polarity where that is known.
    """

    name: str
    place: str  # file:line
    span: tuple[int, int] | None = None
    polarity: str | None = None


@dataclass(frozen=True)
class Sentence:
    """A sentence with its aspects; None: the file has no element for them."""

    id: str
    text: str
    place: str
    aspects: list[Aspect] | None


def read_sentences(file: Path, aspects: Aspects = "terms") -> list[Sentence]:
    """The sentences of an XML file; DataError for offsets that are not those of the term."""
    root = parse_xml(files.read_text(file), file)
    found = [_read(each, file, aspects) for each in root.find_all("sentence")]
    if root.name != "sentences" or not found:
        raise DataError(f"<{root.name}> has no <sentence>", file=file, line=root.line, fix=SHOWN)
    return found


def _read(element: Element, file: Path, aspects: Aspects) -> Sentence:
    text = element.find("text")
    if text is None:
        raise DataError("a sentence without <text>", file=file, line=element.line, fix=SHOWN)
    many, one, name = {
        "terms": ("aspectTerms", "aspectTerm", "term"),
        "categories": ("aspectCategories", "aspectCategory", "category"),
    }[aspects]
    holder = element.find(many)
    listed = None if holder is None else [
        _aspect(each, file, name, text.text) for each in holder.find_all(one)
    ]  # fmt: skip
    return Sentence(element.attributes.get("id", ""), text.text, f"{file}:{element.line}", listed)


def _aspect(element: Element, file: Path, name: str, text: str) -> Aspect:
    own, place = element.attributes, f"{file}:{element.line}"
    for needed in (name, *(("from", "to") if name == "term" else ())):
        if needed not in own:
            there = ", ".join(own) or "none"
            problem = f"<{element.name}> has no {needed}; its attributes: {there}"
            raise DataError(problem, file=place, fix=SHOWN)
    span = check_span(text, own[name], own["from"], own["to"], place) if name == "term" else None
    said = own.get("polarity", CONFLICT)
    if said not in POLARITIES:
        allowed = f"one of {', '.join(POLARITIES)}{nearest(said, POLARITIES)}"
        raise DataError(f"the polarity '{said}' is none: {allowed}", file=place, fix=SHOWN)
    return Aspect(own[name], place, span, own.get("polarity"))


def check_span(text: str, term: str, start: object, end: object, place: str) -> tuple[int, int]:
    """The characters [start, end) of a term; DataError where the text has something else there."""
    try:
        first, last = int(str(start)), int(str(end))
    except ValueError:
        problem = f"from={start} to={end} are no numbers of characters"
        raise DataError(problem, file=place, fix="count characters from 0") from None
    if not 0 <= first < last <= len(text):
        problem = f"from={first} to={last} is outside of the {len(text)} characters of the text"
        raise DataError(problem, file=place, fix="count characters from 0; to is behind the last")
    if text[first:last] != term:
        right = text.find(term)
        where = f"from={right} to={right + len(term)}" if right >= 0 else "a term of this text"
        raise DataError(
            f"the characters {first} to {last} are {text[first:last]!r}, not the term {term!r}",
            file=place,
            fix=where,
        )
    return first, last


@part_of("reader")
class AspectFiles(SplitFiles):
    """Reads an example for each aspect: `text`; `text2`, the aspect; `entities`, its characters.
    Its label is the polarity.

    XML of SemEval-2014 task 4, and tables (`Table`) with the columns text, aspect, start and end
    (characters, from 0; null where they are not known), label and id.

    Args:
        splits: patterns of the file of each split, in order of preference.
        aspects: "terms", which stand in the text, or the "categories" of XML.
        conflict: whether aspects of this polarity are kept: most published scores are of the other
            three (Tang et al., 2016, arXiv:1605.08900, sec. 4.1).
        header: Whether tables have a header.
    """

    leaves = "the polarity is a conflict"

    kinds = (XML,)
    bare_test = True

    def __init__(
        self,
        *,
        splits: Mapping[str, Sequence[str]],
        aspects: Aspects = "terms",
        conflict: bool = False,
        header: bool | None = None,
    ) -> None:
        super().__init__(splits=splits)
        self.aspects, self.conflict = aspects, conflict
        self._table = Table(splits={}, header=header)

    @property
    def notes(self) -> dict[str, str]:
        """{file: how it was read}, for tables whose header was detected."""
        return self._table.notes

    def read_file(self, file: Path, columns: Columns, *, labelled: bool = True) -> list[Example]:
        xml = kind_of(file) == XML
        read = self._from_xml(file) if xml else self._from_table(file, columns, labelled)
        found = list(read)
        kept = [each for each in found if self.conflict or each.label != CONFLICT]
        self.skipped[str(file)] = len(found) - len(kept)
        absent = next((each for each in kept if labelled and each.label is None), None)
        if absent is not None:
            raise DataError("no polarity", file=absent.place, fix=SHOWN)
        if not kept:
            raise DataError(f"no aspect {self.aspects}", file=file, fix=SHOWN)
        return kept

    def _from_xml(self, file: Path) -> Iterator[Example]:
        for number, sentence in enumerate(read_sentences(file, self.aspects)):
            for place, aspect in enumerate(sentence.aspects or ()):
                name = f"{sentence.id or number}.{place}"
                yield _example(name, sentence.text, aspect)

    def _from_table(self, file: Path, columns: Columns, labelled: bool) -> Iterator[Example]:
        read = self._table.read_file(file, columns, header=self._table.header, labelled=labelled)
        for example in read:
            text, name = str(example.fields["text"]), str(example.fields["aspect"])
            start, end = (example.fields.get(side) for side in ("start", "end"))
            known = start is not None and end is not None
            span = check_span(text, name, start, end, example.place) if known else None
            aspect = Aspect(name, example.place, span, example.label)
            yield _example(example.id, text, aspect)


def _example(number: str, text: str, aspect: Aspect) -> Example:
    spans = [] if aspect.span is None else [aspect.span]
    entities = [{"start": start, "end": end, "id": "", "type": ""} for start, end in spans]
    fields = {"text": text, "text2": aspect.name, "entities": entities}
    return Example(number, fields, aspect.polarity, aspect.place)
