"""Entities as characters of a text, as tools of annotation write them: spaCy, Prodigy, doccano and
Label Studio.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from plmctl.core.terminal import counted
from plmctl.tasks.readers.schemes import spell
from plmctl.tasks.scores.metrics import Entity, entities
from plmctl.text.letters import unit_pattern
from plmctl.text.sentences import CJK

TEXT = "text"  # the field of the text
FIELDS = ("entities", "spans", "label", "labels")  # where entities stand, in this order
SHOWN = '{"text": "Anna went to Rome", "entities": [[0, 4, "PER"], [13, 17, "LOC"]]}'


class TextSpan(NamedTuple):
    """Characters [start, end) of a text, and what they are."""

    start: int
    end: int
    kind: str


class SpannedText(NamedTuple):
    """A text and its entities; None: it says nothing of them."""

    text: str
    spans: list[TextSpan] | None


class TaggedText(NamedTuple):
    """The words of a text, their characters and tags. It also counts entities that are not whole
    words, or that overlap a longer one and are left out.
    """

    words: list[str]
    places: list[tuple[int, int]]
    tags: list[str] | None
    inside: int
    overlapped: int


def find_marked(row: Any, text: str = TEXT, field: str | None = None) -> SpannedText | None:
    """The text of a row with its entities; None for a row of another layout.

    Args:
        row: The row of JSON.
        text: The field of the text.
        field: The field of the entities; None: the first of `FIELDS`.

    Raises:
        ValueError: its entities cannot be read.
    """
    if isinstance(row, list):  # [text, {"entities": [...]}], spaCy's
        pair = len(row) == 2 and isinstance(row[0], str) and isinstance(row[1], Mapping)
        return find_marked({**row[1], TEXT: row[0]}) if pair else None
    if not isinstance(row, Mapping):
        return None
    if isinstance(row.get("data"), Mapping):  # Label Studio's
        texts = [each for each in row["data"].values() if isinstance(each, str)]
        whole = row["data"].get(text, texts[0] if len(texts) == 1 else None)
        done = [each for each in row.get("annotations") or () if not each.get("was_cancelled")]
        found = [each.get("value") for each in done[0].get("result") or ()] if done else None
        return None if whole is None else SpannedText(whole, _read(found, whole))
    if not isinstance(row.get(text), str):
        return None
    known = [name for name in ((field,) if field else FIELDS) if isinstance(row.get(name), list)]
    return SpannedText(row[text], _read(row[known[0]] if known else None, row[text]))


def _read(found: Sequence[Any] | None, text: str) -> list[TextSpan] | None:
    return None if found is None else [_read_one(each, text) for each in found]


def _read_one(value: Any, text: str) -> TextSpan:
    """[start, end, label], or an object with these."""
    said = None
    if isinstance(value, Mapping):
        said = value.get("text")
        names = (("start", "start_offset"), ("end", "end_offset"), ("label", "labels", "type"))
        value = [next((value[name] for name in own if name in value), None) for own in names]
    if not isinstance(value, list | tuple) or len(value) < 3:
        raise ValueError(f"{str(value)[:60]} is no [start, end, label]")
    start, end, kind = value[:3]
    kind = kind[0] if isinstance(kind, list) and len(kind) == 1 else kind
    whole = [isinstance(each, int) and not isinstance(each, bool) for each in (start, end)]
    if not all(whole) or not isinstance(kind, str) or not kind.strip():
        raise ValueError(f"{str(value)[:60]} is no [start, end, label]")
    if isinstance(said, str) and not _is_at(said, text, start, end):
        start, end = find_characters(text, start), find_characters(text, end)
    if not 0 <= start < end <= len(text):
        start, end = value[:2]
        has = counted(len(text), "character")
        raise ValueError(f"[{start}, {end}) is no part of a text of {has}")
    if isinstance(said, str) and not _is_at(said, text, start, end):
        start, end = value[:2]
        raise ValueError(f"[{start}, {end}) is {text[start:end]!r}, not {said!r}")
    return TextSpan(start, end, kind.strip())


def _is_at(said: str, text: str, start: int, end: int) -> bool:
    return said.strip() == text[start:end].strip()


def count_units(text: str) -> int:
    """The units of UTF-16 of a text, by which JavaScript counts: two for most emoji."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def find_characters(text: str, units: int) -> int:
    """The characters of a text in its first units of UTF-16, as Label Studio counts them."""
    start = text.encode("utf-16-le", "surrogatepass")[: 2 * units]
    return len(start.decode("utf-16-le", "replace")) + max(0, units - count_units(text))


def tag_text(text: str, spans: Sequence[TextSpan] | None) -> TaggedText:
    """The words of a text with the tags of its entities, as IOB2: a word belongs to an entity if
    they share a character; of entities that share a word the longest has it.
    """
    places = [match.span() for match in unit_pattern(CJK).finditer(text)]
    words = [text[start:end] for start, end in places]
    if spans is None:
        return TaggedText(words, places, None, 0, 0)
    taken, kept = set[int](), list[Entity]()
    inside = overlapped = 0
    for start, end, kind in sorted(spans, key=lambda span: span.start - span.end):
        own = [n for n, (first, last) in enumerate(places) if first < end and last > start]
        if not own or taken & {*own}:
            overlapped += bool(own)
            continue
        taken |= {*own}
        kept.append((kind, own[0], own[-1]))
        covered = text[places[own[0]][0] : places[own[-1]][1]]
        inside += covered != text[start:end].strip()
    return TaggedText(words, places, spell(kept, len(words), "iob2"), inside, overlapped)


def list_marked(
    tags: Sequence[str], places: Sequence[Sequence[int]], text: str
) -> list[dict[str, Any]]:
    """The entities in the tags of words, by characters: {start, end, label, text}."""
    found: list[dict[str, Any]] = []
    for kind, first, last in sorted(entities(tags), key=lambda entity: entity[1]):
        start, end = places[first][0], places[last][1]
        if start == end:  # the word of an empty text
            continue
        found.append({"start": start, "end": end, "label": kind, "text": text[start:end]})
    return found


def describe_marked(read: Iterable[TaggedText]) -> str:
    """A line on the way in which texts with entities were read."""
    read = list(read)
    inside, overlapped = sum(t.inside for t in read), sum(t.overlapped for t in read)
    line = "entities are read by their characters, as tags of words"
    if inside:
        line += f"; {inside:,} begin or end inside a word, which they have whole"
    if overlapped:
        line += f"; {overlapped:,} overlap a longer one, and are left out"
    return line
