"""Unreadable rows of a table: one message reports all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from plmctl.core.errors import DataError
from plmctl.core.terminal import counted

EMPTY = "the label is empty"
SHOWN = 5  # lines that a message names


def list_broken(broken: Mapping[str, Sequence[int]]) -> str:
    """Each reason with how many lines have it, and the first ones."""
    return "; ".join(
        f"{reason} in {counted(len(lines), 'line')} ({', '.join(map(str, lines[:SHOWN]))}"
        f"{', ...' if len(lines) > SHOWN else ''})"
        for reason, lines in broken.items()
    )


def explain_broken(
    file: Path, broken: Mapping[str, Sequence[int]], first: str, *, rows: int
) -> DataError:
    """The error of rows that cannot be read, with how many there are.

    Args:
        broken: lines by what is wrong with them.
        first: The first one, as it is reported.
    """
    several = sum(map(len, broken.values())) > 1
    found = f"of {rows:,} rows, {list_broken(broken)}" if several else f"1 of {rows:,} rows"
    whose = "them" if several else "it"
    correct = f"correct the {'lines' if several else 'line'}, or pass over {whose}"
    problem = f"{first}; {found}"
    fix = f"{correct} and all others that cannot be read: task.reader.lenient=true"
    return DataError(problem, file=file, line=min(lines[0] for lines in broken.values()), fix=fix)
