"""The text of a label that is a number, or true or false, in JSON, Parquet or a setting."""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from plmctl.core.errors import DataError
from plmctl.core.folding import fold_name
from plmctl.core.spelling import spell_setting

SETTING = "task.label_names"
# as pandas and other programs write a value that is none
_ABSENT = {"nan", "NaN", "NAN", "None", "NULL", "null", "N/A", "NA", "<NA>", "#N/A", "NaT"}


def spell_label(label: Any) -> str:
    """`label` as text: true and false in JSON's spelling, and a whole number without a fraction. So
    1 and 1.0, one number of JSON, are one label.
    """
    if isinstance(label, float) and label.is_integer():
        return str(int(label))
    return json.dumps(label) if isinstance(label, bool) else str(label).strip()


def spell_names(names: Sequence[str]) -> str:
    """The setting that names labels in this order, as one types it."""
    return spell_setting(SETTING, [_as_number(name) for name in names])


def spell_codes(codes: Mapping[str, str]) -> str:
    """The setting that names labels by their codes in files, as one types it."""
    return spell_setting(SETTING, {_as_number(code): name for code, name in codes.items()})


def _as_number(name: str) -> int | str:
    return int(name) if re.fullmatch("0|[1-9][0-9]*", name) else name


def is_absent(label: Any) -> bool:
    """Whether a value is none: null, or a number that is not one, as pandas has it."""
    return label is None or (isinstance(label, float) and math.isnan(label))


def group_alike(labels: Iterable[str]) -> list[list[str]]:
    """Names that differ in their spelling alone, several in each group; the sign of a number is no
    matter of spelling.
    """
    alike = defaultdict[str, list[str]](list)
    for label in labels:
        alike[fold_name(label)].append(label)
    return [group for group in alike.values() if len(group) > 1]


def describe_names(labels: Mapping[str, int]) -> list[str]:
    """Lines on names of labels that may be one label, or no label.

    Args:
        labels: {name: its number of examples}.
    """
    lines = []
    for group in group_alike(labels):
        listed = " and ".join(f"'{name}' ({labels[name]:,})" for name in sorted(group))
        lines.append(f"the labels {listed} differ in case, spaces, - or _ alone: are they one?")
    absent = [f"'{name}' ({labels[name]:,})" for name in labels if name in _ABSENT]
    if absent:
        lines.append(f"the label {', '.join(absent)} may stand for one that is missing")
    return lines


class LabelKinds:
    """Refuses a file in which some labels are true or false, and others numbers."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._first: dict[bool, tuple[int, str]] = {}  # whether true or false -> line, label

    def add(self, label: Any, line: int) -> None:
        """A label of this line, or a list of them; DataError where an earlier line has the other
        kind.
        """
        for each in label if isinstance(label, list) else [label]:
            if not isinstance(each, bool | int | float):
                continue
            kind, name = isinstance(each, bool), spell_label(each)
            self._first.setdefault(kind, (line, name))
            if (not kind) in self._first:
                where, other = self._first[not kind]
                raise DataError(
                    f"the label is {name}, but {other} on line {where}: true and false are no"
                    " numbers",
                    file=self.file,
                    line=line,
                    fix="one kind in all lines: true and false, or 1 and 0",
                )
