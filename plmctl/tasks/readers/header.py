"""Whether the first line of a table names its columns, where the columns are given by number."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import islice

LOOKED = 2000  # rows
_WORD = re.compile(r"[A-Za-z][\w#.-]*")
_NUMBER = re.compile(r"[-+]?\d+([.,]\d+)?")


def names_columns(rows: Sequence[Sequence[str]], columns: Mapping[str, int]) -> bool | None:
    """Whether `rows[0]` is names; None: its label occurs nowhere else, so it may be a name, but
    there is no other sign of it.

    Names are short, and shorter than the cells below them. The label's is none of the labels: a
    word above numbers, or one that does not come again.

    Args:
        columns: {role: number of its cell}; `label` where there is one, `id` is not considered.
    """
    read = {role: column for role, column in columns.items() if role != "id"}
    first = rows[0]
    rest = [row for row in islice(rows, 1, LOOKED) if len(row) > max(read.values())]
    if (
        not rest
        or len(first) <= max(read.values())
        or not all(_is_name(first[column]) for column in read.values())
    ):
        return False
    below = {role: [row[column].strip() for row in rest] for role, column in read.items()}
    short = all(
        _is_short(first[column].strip(), below[role])
        for role, column in read.items()
        if role != "label"
    )
    labels = [label for label in below.get("label", ()) if label]
    if not labels:
        return short and all(_WORD.fullmatch(cell.strip()) for cell in first) and len(first) > 1
    name = first[read["label"]].strip()
    if all(_NUMBER.fullmatch(label) for label in labels):
        return not _NUMBER.fullmatch(name)
    known = {word for label in labels for word in label.split()}
    if known & {*name.split()}:
        return False
    again = 2 * len(set(labels)) <= len(labels)
    if short:
        return again or all(_WORD.fullmatch(first[column].strip()) for column in read.values())
    return None if again and len(labels) > len(set(labels)) + 5 else False


def _is_name(cell: str) -> bool:
    """Few words, and no end of a sentence."""
    text = cell.strip()
    return 0 < len(text) <= 40 and len(text.split()) <= 4 and text[-1] not in ".!?。！？…"


def _is_short(name: str, below: Sequence[str]) -> bool:
    return name not in below and 2 * len(name) <= sum(map(len, below)) / len(below)
