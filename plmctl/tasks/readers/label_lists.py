"""Several labels of a row as files spell them: lists in brackets, and 0 or 1 for each label."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from plmctl.core.terminal import counted

LEAST = 2  # columns of 0 and 1 that are taken for labels
_PAIRS = {"[": "]", "(": ")", "{": "}"}
# a label in quotes, or without any
_ITEM = re.compile(
    r"""\s*(?:'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)"|([^,'"\[\]]+?))\s*(,|$|(?=['"]))"""
)
_FLAGS = {
    **{"0": False, "0.0": False, "false": False, "no": False, "n": False},
    **{"1": True, "1.0": True, "true": True, "yes": True, "y": True},
}
_DIGITS = re.compile(r"[01](?:[\s,;|/]?[01])+")  # 010, 0 1 0, 0;1;0


def is_bracketed(text: str) -> bool:
    """Whether a text is a list as Python, JSON or numpy write it: ['a', 'b'], [0 1 1]."""
    text = text.strip()
    return len(text) > 1 and _PAIRS.get(text[0]) == text[-1]


def is_list(text: str) -> bool:
    """Whether a text is such a list, and not a name in brackets."""
    found = read_list(text) if is_bracketed(text) else None
    return found is not None and (len(found) > 1 or any(sign in text for sign in "'\""))


def read_list(text: str) -> list[str] | None:
    """The labels of a list in brackets; None where it is none.

    "['a', \\"b c\\"]"    ->    ["a", "b c"]
    """
    inner, found, at = text.strip()[1:-1].strip(), [], 0
    if re.fullmatch(r"[01](\s+[01])+", inner):  # the spelling of numpy
        return inner.split()
    while at < len(inner):
        match = _ITEM.match(inner, at)
        if match is None:
            return None
        label = next(each for each in match.groups()[:3] if each is not None)
        found.append(re.sub(r"\\(.)", r"\1", label) if match[3] is None else label.strip())
        at = match.end()
    return found


def are_digits(texts: Sequence[str]) -> bool:
    """Whether each text has a 0 or a 1 for each of several labels: 010 and 100, or 0 1 0.

    Numbers alone, such as 10, 100 and 110, may name classes: one text must begin with 0, or have
    signs between.
    """
    found = {"".join(re.findall("[01]", each)) for each in texts if _DIGITS.fullmatch(each.strip())}
    plain = all(text.strip().isdigit() and not text.strip().startswith("0") for text in texts)
    matched = all(_DIGITS.fullmatch(text.strip()) for text in texts)
    return matched and not plain and len({*map(len, found)}) == 1 and len(found) > 1


def read_digits(text: str) -> list[str]:
    """The 0 or 1 of each label of such a text."""
    return re.findall("[01]", text)


def read_flag(value: Any) -> bool | None:
    """Whether a label is there by its column: 1, true or yes, not 0, false or no; None for any
    other value.
    """
    return _FLAGS.get(str(value).strip().lower())


def count_places(lists: Sequence[Sequence[str]]) -> int:
    """The labels of lists that have a 0 or a 1 for each: `[0, 1, 1]`; 0 where they are lists of
    names, in which none stands twice.
    """
    sizes = {len(each) for each in lists}
    twice = any(len({*each}) < len(each) for each in lists)
    if len(sizes) != 1 or not (twice or len(lists) > 1):
        return 0
    (size,) = sizes
    flags = {name for each in lists for name in each} <= _FLAGS.keys()
    return size if flags and size >= LEAST else 0


def find_flags(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    """The columns that hold nothing but 0 and 1, or yes and no, where there are several: they may
    be labels.
    """
    found = [
        name
        for place, name in enumerate(names)
        if rows and all(place < len(row) and read_flag(row[place]) is not None for row in rows)
    ]
    return found if len(found) >= LEAST else []


def describe_places(size: int) -> str:
    """A sentence on the way in which lists of 0 and 1 are read."""
    return (
        f"its lists hold a 0 or 1 for each of {counted(size, 'label')}, with numbers from"
        f" 0 to {size - 1}; task.label_names=[...] names them in this order"
    )


def name_places(labels: Sequence[str], names: Sequence[str]) -> list[str]:
    """The labels that are positions, by `names`, which may be these positions themselves."""
    places = {str(place) for place in range(len(names))}
    return [*labels] if {*names} == places else [names[int(label)] for label in labels]


def take_flags(cells: Mapping[str, Any], columns: Mapping[str, str]) -> tuple[list[str], str]:
    """(the labels whose columns have a 1, the name of the first column with another value than 0
    and 1).

    Args:
        cells: {role: its cell}.
        columns: {role: the name of its label}.
    """
    flags = {role: read_flag(cells[role]) for role in columns}
    wrong = next((columns[role] for role, flag in flags.items() if flag is None), "")
    return [columns[role] for role, flag in flags.items() if flag], wrong
