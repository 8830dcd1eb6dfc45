"""Labels of a data set that count as others: five stars as three classes, rare kinds as one."""

from __future__ import annotations

import shlex
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from plmctl.core.errors import DataError, list_some, nearest
from plmctl.core.terminal import counted
from plmctl.tasks.readers import files
from plmctl.tasks.readers.label_text import group_alike, spell_label
from plmctl.tasks.record import Example
from plmctl.text.tabular import cells_of, spell_row

MERGED = "then task.reader.merged_by=labels.csv"
SHOWN = 10  # labels of the table that no example has


def propose_table(labels: Mapping[str, int]) -> str:
    """The command that writes a table by which labels of nearly the same name are the most frequent
    of them; "" where no names are alike.

    Args:
        labels: {name: its number of examples}.
    """
    rows = []
    for group in group_alike(labels):
        new = max(group, key=lambda name: labels[name])
        rows += [(old, new) for old in group if old != new]
    return write_table(rows) if rows else ""


def write_table(rows: Iterable[tuple[str, str]]) -> str:
    """The command that adds pairs to a table: a label, and the label it counts as."""
    return f"printf '%s\\n' {shlex.join(map(spell_row, rows))} >> labels.csv"


class MergedLabels:
    """A table of two columns: a label of the files, and the label that it counts as. Labels that
    the table lacks stay as they are.

    Args:
        path: A .csv file, or one with a tab between both columns, without a line of names.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._met: set[object] = set()  # labels of examples, before they are changed

    @cached_property
    def table(self) -> Mapping[str, str]:
        """{label: the label that it counts as}.

        Raises:
            DataError: A line has not two cells, or a label counts as two.
        """
        file = files.existing(self.path, "task.reader.merged_by")
        table: dict[str, str] = {}
        for line, cells in cells_of(file):
            old, new = [cell.strip() for cell in cells] if len(cells) == 2 else ("", "")
            if not old or not new:
                what = "a line has a label and the label that it counts as"
                raise DataError(
                    what, file=file, line=line, fix="a tab, or in a .csv a comma, between"
                )
            if table.setdefault(old, new) != new:
                what = f"'{old}' counts as '{table[old]}' and as '{new}'"
                raise DataError(what, file=file, line=line, fix="leave out one of the lines")
        return table

    def change(self, examples: Iterable[Example]) -> list[Example]:
        """The examples with labels of the table; probabilities of merged labels are summed."""
        own = [*examples]
        self._met |= {each.label for each in own if isinstance(each.label, str)}
        return [
            replace(each, label=self._name(each.label), shares=self._add(each.shares))
            for each in own
        ]

    def describe(self, labels: Iterable[str]) -> str:
        """A sentence on the labels that count as one.

        Args:
            labels: The labels of examples, before they are changed.
        """
        counts = Counter(labels)
        merged: dict[str, list[str]] = defaultdict(list)
        for old in sorted(counts):
            merged[self.table.get(old, old)].append(f"{old} {counts[old]:,}")
        shown = "; ".join(f"{new}: {', '.join(olds)}" for new, olds in merged.items())
        return f"{counted(len(counts), 'label')} as {len(merged):,} ({shown})"

    def describe_unused(self) -> str:
        """A sentence on the labels of the table that no example had so far; "" without any."""
        unused = [repr(old) for old in self.table if old not in self._met]
        return f"unused in {self.path}: {list_some(unused, SHOWN)}" if unused else ""

    def check(self, labels: Iterable[object], file: Path) -> None:
        """Raise DataError where the labels of training, once changed, have none of the table."""
        known = sorted({label for label in labels if isinstance(label, str)})
        if not {*known} & {*self.table.values()}:
            old = next(iter(self.table))
            what = f"{file} has none of these labels, such as '{old}'{nearest(old, known)}"
            fix = f"labels of the training examples: {', '.join(known[:8])}"
            raise DataError(what, file=self.path, fix=fix)

    def _name(self, label: object) -> object:
        return self.table.get(label, label) if isinstance(label, str) else label

    def _add(self, shares: Mapping[str, float] | None) -> Mapping[str, float] | None:
        if shares is None:
            return None
        sums: dict[str, float] = defaultdict(float)
        for label, share in shares.items():
            sums[self.table.get(spell_label(label), label)] += share
        return dict(sums)
