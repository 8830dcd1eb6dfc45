"""Rows of numbers and names: a list, columns, or a data frame."""

from __future__ import annotations

from typing import Any

from plmctl.core.errors import DataError, UsageError, nearest


class BySplit(dict[str, Any]):
    """{split: its results}; DataError for a split that is missing."""

    def __missing__(self, split: object) -> Any:
        near = nearest(str(split), self)
        there = f"there are {', '.join(self)}" if self else "nothing was scored"
        raise DataError(f"no split {split!r}{near}: {there}")


class RowList(list[dict[str, Any]]):
    """A list of rows, {column: value}; not every row has every column."""

    def columns(self) -> dict[str, list[Any]]:
        """{column: its values}, None where a row has none."""
        names = dict.fromkeys(name for row in self for name in row)
        return {name: [row.get(name) for row in self] for name in names}

    def frame(self) -> Any:
        """The rows as a pandas.DataFrame; UsageError where pandas is not installed."""
        try:
            import pandas
        except ImportError as error:
            fix = "pip install pandas, or .columns(), which is a dict of lists"
            raise UsageError(f"a data frame needs pandas\n  fix: {fix}") from error
        return pandas.DataFrame(self.columns())
