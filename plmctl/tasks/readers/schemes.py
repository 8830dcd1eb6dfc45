"""Schemes of tags for where entities begin and end: IOB1, IOB2 (BIO), BIOES (IOBES), BMES, BMEWO
and BILOU, and types alone (IO).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from plmctl.core.errors import DataError
from plmctl.tasks.scores.metrics import Entity

Spelling = Literal["iob1", "iob2", "bioes"]  # in which a model can be trained
# names of these in a setting: tags of BMES are read in the letters of BIOES
SpellingName = Literal["iob1", "iob2", "bioes", "bmes"]
NAMES: dict[SpellingName, Spelling] = {
    "iob1": "iob1",
    "iob2": "iob2",
    "bioes": "bioes",
    "bmes": "bioes",
}
FileScheme = Literal["auto", "iob1", "iob2", "bioes", "bmes", "bmewo", "bilou", "io"]
# scheme of files -> what stands before the type of an entity
LETTERS = {
    "iob1": "BI",
    "iob2": "BI",
    "bioes": "BIES",
    "bmes": "BMES",
    "bmewo": "BMEW",
    "bilou": "BILU",
}
IO = "io"  # types alone: neighbours of one type are one entity
# BMES's M, BMEWO's W, and BILOU's L and U, in the letters of BIOES
_BIOES = {"M": "I", "W": "S", "L": "E", "U": "S"}


class PlacedTags(NamedTuple):
    """The tags of a sentence, and the line where it begins."""

    line: int
    tags: Sequence[str]


class SchemeEvidence(NamedTuple):
    """A tag that only one scheme has in its position."""

    line: int
    tag: str
    before: str


def iob1_to_iob2(tags: Sequence[str]) -> list[str]:
    """Every entity begins with B-: an I- after O, after another type or at the start becomes B-.
    IOB2 is left as it is.
    """
    iob2: list[str] = []
    before = "O"
    for tag in tags:
        begins = tag[:1] == "I" and is_marked(tag) and (before == "O" or before[1:] != tag[1:])
        iob2.append("B" + tag[1:] if begins else tag)
        before = tag
    return iob2


def canonical(tags: Sequence[str]) -> list[str]:
    """BMES, BMEWO and BILOU in the letters of BIOES; every other tag as it is."""
    return [_BIOES.get(tag[0], tag[0]) + tag[1:] if tag[1:2] == "-" else tag for tag in tags]


def is_marked(tag: str) -> bool:
    """Whether a tag says where in an entity a word is: B-PER, or B where there are no types."""
    return tag[:1] in set("BIESMLUW") and tag[1:2] in ("-", "")


def tells_entities(tags: Iterable[str]) -> bool:
    """Whether these tags are those of a scheme: all are O or marked, and not only letters that may
    be parts of speech.
    """
    marked = {tag for tag in tags if tag != "O"}
    return all(map(is_marked, marked)) and any(len(tag) > 1 or tag == "B" for tag in marked)


def detect(sentences: Sequence[PlacedTags], file: object) -> str | None:
    """The scheme of the tags of a file; None without entities.

    IOB1 has an I- that does not go on, IOB2 a B- behind another tag. A file with both is neither:
    DataError, as for the letters of two schemes.
    """
    known = {tag for sentence in sentences for tag in sentence.tags}
    if not tells_entities(known):
        return None
    letters = {tag[0] for tag in known if tag != "O"}
    fitting = [scheme for scheme, own in LETTERS.items() if letters <= set(own)]
    if not fitting or (letters & set("EML") and "B" not in letters):
        listed = ", ".join(sorted(letters))
        what = f"the tags begin with {listed} and O: no scheme has these together"
        allowed = "; ".join(f"{name}: {', '.join(own)}" for name, own in LETTERS.items())
        raise DataError(f"{what} ({allowed})", file=file, fix="correct the tags")
    if len(fitting) > 1 and fitting[0] != "iob1":
        return "bioes"  # B and S alone say the same in each
    return fitting[0] if fitting[0] != "iob1" else _tell_iob(sentences, file)


def _tell_iob(sentences: Sequence[PlacedTags], file: object) -> str:
    found: dict[str, SchemeEvidence] = {}
    for line, tags in sentences:
        before = "O"
        for tag in tags:
            if tag != "O" and (before == "O" or tag[1:] != before[1:]):
                kind = "iob1" if tag[0] == "I" else "iob2"
                found.setdefault(kind, SchemeEvidence(line, tag, before))
            before = tag
    if len(found) > 1:
        first, second = found["iob1"], found["iob2"]
        problem = f"{_describe(first)} is IOB1, {_describe(second)} is IOB2: a file is one of them"
        fix = "task.reader.scheme=iob1 begins an entity at such an I-; iob2 leaves all as it is"
        raise DataError(problem, file=file, line=first.line, fix=fix)
    return next(iter(found))


def _describe(evidence: SchemeEvidence) -> str:
    line, tag, before = evidence
    where = "at the begin of a sentence or after O" if before == "O" else f"after {before}"
    return f"{tag} {where} (in the sentence of line {line})"


def check_letters(sentences: Sequence[PlacedTags], scheme: str, file: object) -> None:
    """DataError for the first tag that the stated scheme does not have."""
    letters = LETTERS.get(scheme, "I")
    for line, tags in sentences:
        for tag in tags:
            if tag != "O" and not (is_marked(tag) and tag[0] in letters):
                allowed = ", ".join(f"{letter}-" for letter in letters)
                problem = f"{scheme} has O, {allowed} before the type, and not {tag}"
                fix = "task.reader.scheme=auto, or null for tags without entities"
                raise DataError(problem, file=file, line=line, fix=fix)


def read_as(tags: Sequence[str], scheme: str | None) -> list[str]:
    """Tags of a file in the letters of IOB2 or BIOES; ill-formed ones stay as they are, and count
    as conlleval counts them.
    """
    return iob1_to_iob2(tags) if scheme in ("iob1", IO) else canonical(tags)


def spell(entities: Iterable[Entity], length: int, scheme: Spelling) -> list[str]:
    """The tags of entities that do not overlap, among `length` words."""
    tags = ["O"] * length
    before: tuple[str, int] | None = None  # type and last word
    for kind, first, last in sorted(entities, key=lambda entity: entity[1]):
        for word in range(first, last + 1):
            letter = "I"
            if scheme == "bioes":
                letter = ("I", "E", "B", "S")[2 * (word == first) + (word == last)]
            elif word == first and (scheme == "iob2" or before == (kind, first - 1)):
                letter = "B"
            tags[word] = f"{letter}-{kind}" if kind else letter
        before = (kind, last)
    return tags


def spelling_of(names: Iterable[str]) -> Spelling:
    """The scheme of tags that a reader has given: BIOES if an entity can end, else IOB2."""
    return "bioes" if any(is_marked(tag) and tag[0] in "ES" for tag in names) else "iob2"


def may_begin(tag: str, scheme: Spelling) -> bool:
    """Whether a well-formed sentence can begin with this tag."""
    return may_follow("O", tag, scheme)


def may_end(tag: str, scheme: Spelling) -> bool:
    """Whether a well-formed sentence can end with this tag."""
    return may_follow(tag, "O", scheme)


def may_follow(before: str, tag: str, scheme: Spelling) -> bool:
    """Whether this tag can stand behind the one before in a well-formed sentence."""
    inside = before != "O" and before[1:] == tag[1:]
    if scheme == "bioes":
        goes_on = tag[:1] in ("I", "E")
        return (goes_on and inside) if before[:1] in ("B", "I") else not goes_on
    if tag == "O":
        return True
    return inside or tag[:1] != ("I" if scheme == "iob2" else "B")
