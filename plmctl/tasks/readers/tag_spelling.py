"""Spellings of the marks of entities in files: `B-PER`, `b_PER`, `PER-B`, `(PER*`, and `0` or
`OTHER` for O; all of them become `B-PER` and `O`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from plmctl.core.errors import DataError, list_some
from plmctl.tasks.readers.schemes import IO, PlacedTags, canonical, tells_entities

_BETWEEN = "[-_.:/|#+]"
# a mark and a type, in either order; marks alone where there are no types
_ORDERS = (
    re.compile(rf"(?P<mark>[BIESMLUW])(?:{_BETWEEN}(?P<kind>.*))?", re.IGNORECASE),
    re.compile(rf"(?P<kind>.+){_BETWEEN}(?P<mark>[BIESMLUW])", re.IGNORECASE),
)
_ALWAYS = frozenset({"o", "0"})  # O in another case, and the digit that looks like it
# further tags for a word in no entity, where no other tag is one
_OUTSIDE = _ALWAYS | {"out", "outside", "other", "others", "none", "null", "nil", "_", "-", "*"}
_BRACKETS = re.compile(r"(?:\((?P<kind>[^()*]+))?\*?(?P<end>\))?|[-_O]")
SHOWN = 3  # tags that a note lists


def find_outside(tags: Iterable[str]) -> set[str]:
    """Those of the tags of a file that may say that a word is in no entity."""
    known = set(tags)
    if "O" in known:
        return {tag for tag in known if tag.lower() in _ALWAYS}
    return {tag for tag in known if tag.lower() in _OUTSIDE}


def find_marks(tags: Iterable[str]) -> dict[str, str] | None:
    """{tag as it is spelled: `B-PER` or `O`} of all tags of a file; None without entities.

    The order is that in which marks can begin an entity: `S-B` and `S-I` are of the type S.
    """
    known = set(tags)
    outside = find_outside(known)
    fitting = []
    for order in _ORDERS:
        found = {tag: order.fullmatch(tag) for tag in known - outside}
        if not found or not all(found.values()):
            continue
        marks = {tag: _join(match) for tag, match in found.items() if match}
        plain = all(own == tag for tag, own in marks.items())
        begins = bool({own[0] for own in marks.values()} & {"B", "I"})
        # signs other than a hyphen may also stand in names of other things
        if tells_entities(marks.values()) and (plain or begins):
            fitting.append((not begins, marks))
    if not fitting:
        return None
    return min(fitting, key=lambda each: each[0])[1] | dict.fromkeys(outside, "O")


def _join(match: re.Match[str]) -> str:
    kind = match["kind"] or ""
    return f"{match['mark'].upper()}-{kind}" if kind else match["mark"].upper()


def unify(
    sentences: Sequence[PlacedTags], scheme: str, file: object
) -> tuple[list[PlacedTags], str]:
    """The tags of a file as `B-PER` and `O`, unchanged without entities, and a note on the change.

    Raises:
        DataError: Some words have marks, and some have a type alone.
    """
    known = {tag for sentence in sentences for tag in sentence.tags}
    marks = find_marks(known)
    if marks is None and scheme == IO:
        marks = {tag: f"I-{tag}" for tag in known} | dict.fromkeys(find_outside(known), "O")
    elif marks is None:
        if brackets := _read_brackets(sentences):
            return brackets, "(PER* is read as B-PER"
        _refuse_mixed(sentences, known, file)
        return list(sentences), ""
    changed = {tag: own for tag, own in sorted(marks.items()) if tag != own}
    note = list_some([f"{tag} is read as {own}" for tag, own in changed.items()], SHOWN)
    return [PlacedTags(line, [marks[tag] for tag in tags]) for line, tags in sentences], note


def _read_brackets(sentences: Sequence[PlacedTags]) -> list[PlacedTags]:
    """Entities between brackets, `(PER* * *)`, as IOB2; none where these are not matched."""
    read, opened = [], 0
    for line, tags in sentences:
        kind, own = "", []
        for tag in tags:
            match = _BRACKETS.fullmatch(tag)
            if not tag or match is None or (match["kind"] and kind):
                return []
            letter = "B" if match["kind"] else "I"
            kind = match["kind"] or kind
            if match["end"] and not kind:
                return []
            own.append(f"{letter}-{kind}" if kind else "O")
            opened += letter == "B"
            # (PER) has no star, and ends where it begins
            kind = "" if match["end"] else kind
        if kind:
            return []
        read.append(PlacedTags(line, own))
    return read if opened else []


def _refuse_mixed(sentences: Sequence[PlacedTags], known: set[str], file: object) -> None:
    """DataError for the first tag without a mark in a file where a type has several marks."""
    marked = {tag for tag in known if tag[1:2] == "-" and tag[0] in "BIESMLUW" and tag[2:]}
    if not any(f"B{tag[1:]}" in marked for tag in marked if tag[0] != "B"):
        return
    others = known - marked - find_outside(known)
    line, tag = next((line, tag) for line, tags in sentences for tag in tags if tag in others)
    problem = f"'{tag}' does not say where in an entity its word is, as {min(marked)} does"
    fix = "correct the tags, or task.reader.scheme=null, which scores each word alone"
    raise DataError(problem, file=file, line=line, fix=fix)


def describe_unmarked(tags: Iterable[str]) -> str:
    """A sentence on tags without entities; "" for others."""
    known = set(tags)
    outside = find_outside(known)
    kinds = sorted(known - outside)
    if not kinds or find_marks(known) is not None:
        return ""
    listed = f"{', '.join(kinds[:SHOWN])}{', ...' if len(kinds) > SHOWN else ''}"
    numbers = all(tag.isdecimal() for tag in known)
    more = "; task.reader.scheme=io makes entities of neighbours with one tag" if outside else ""
    more = "; they are numbers: task.label_names=[O,...] names them, from 0" if numbers else more
    return f"the tags ({listed}) name no entities: single words are scored, not entities{more}"


def respell(names: Sequence[str]) -> list[str]:
    """The names of tags as `unify` and `read_as` give them: `B-PER` and `O`, in the letters of IOB2
    or BIOES.
    """
    marks = find_marks(names)
    return canonical([marks[name] for name in names]) if marks else list(names)
