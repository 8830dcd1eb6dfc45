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
    file: Path,
    broken: Mapping[str, Sequence[int]],
    first: str,
    *,
    lenient: bool = True,
    fix: str = "",
) -> DataError:
    """The error of rows that cannot be read, with all of them where there are several.

    Args:
        broken: lines by what is wrong with them.
        first: The first one, as it is reported.
        lenient: whether such lines can be passed over.
        fix: The fix where they cannot.
    """
    several = sum(map(len, broken.values())) > 1
    pass_over = "correct the line, or pass such lines over: task.reader.lenient=true"
    return DataError(
        first + (f"; of all rows, {list_broken(broken)}" if several else ""),
        file=file,
        line=min(lines[0] for lines in broken.values()),
        fix=(pass_over.replace("line,", "lines,") if several else pass_over) if lenient else fix,
    )
