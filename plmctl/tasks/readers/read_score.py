"""Numbers that people gave, as a table or a line of text has them: scores, and reading times."""

from __future__ import annotations

import math
from typing import Any

from plmctl.core.errors import DataError
from plmctl.text.separators import DECIMAL

LARGEST = 1e15  # squared and summed over 10^8 rows, it still has a number in 32 bits


def read_score(
    label: Any, file: Any, *, fix: str = "check task.columns.label", line: int | None = None
) -> float:
    """The number that `label` spells.

    Args:
        label: The text that stands where the score belongs.
        fix: The fix if it is no number at all.
        line: its line, where `file` does not say it.

    Raises:
        DataError: it is no number, or its size is above `LARGEST`.
    """
    try:
        value = float(label)
    except (TypeError, ValueError):
        value = math.nan
    if math.isfinite(value) and abs(value) > LARGEST:
        what = f"the score '{label}' is too large: at most {LARGEST:g} can be learned or averaged"
        raise DataError(
            what, file=file, line=line, fix="scores in another unit, such as from 0 to 5"
        )
    if not math.isfinite(value):
        fix = spell_point(str(label)) or fix
        raise DataError(f"the score '{label}' is not a number", file=file, line=line, fix=fix)
    return value


def put_point(number: str) -> str:
    """A number with a point before its decimals, for one with a comma there."""
    return number.strip().replace(".", "").replace(",", ".")


def spell_point(number: str) -> str:
    """A fix for a number with a comma before its decimals; "" for any other."""
    found = DECIMAL.fullmatch(number.strip())
    if found is None:
        return ""
    point = put_point(number)
    if "." not in number and len(found[1]) == 3:
        return f"write {point} or {point.replace('.', '')}: the comma may be that of a thousand"
    return f"write {point} in this row, and a point before all decimals of the others"
