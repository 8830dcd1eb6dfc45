"""Predictions that count together, as units that are drawn, swapped and compared as a whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from plmctl.core.terminal import counted

FEW = 30  # bundles; tests and intervals from fewer are often too sure (Cameron et al., 2008)
Row = dict[str, Any]
Score = Callable[[Sequence[Mapping[str, Any]]], Mapping[str, float]]


def bundle_rows(rows: Sequence[Row]) -> list[Row]:
    """One row for each bundle, in the order of their first predictions: lists of its labels, and
    in `rows` the predictions themselves. One without a bundle stands alone.

    Examples of one bundle are not independent: draws of single ones would break questions apart and
    make intervals too narrow (Efron and Tibshirani, 1993, ch. 8).
    """
    found: dict[Any, list[Row]] = {}
    for row in rows:
        found.setdefault(row.get("bundle", ("alone", row["id"])), []).append(row)
    return [
        {
            "id": own[0]["id"],
            "gold": [str(row["gold"]) for row in own],
            "guess": [str(row["guess"]) for row in own],
            "rows": own,
        }
        for own in found.values()
    ]


def score_bundles(score: Score) -> Score:
    """`score` on the rows by `bundle_rows`; a bundle that was drawn twice is two."""

    def measure(units: Sequence[Mapping[str, Any]]) -> Mapping[str, float]:
        return score([{**row, "bundle": n} for n, unit in enumerate(units) for row in unit["rows"]])

    return measure


def count_bundles(rows: Sequence[Mapping[str, Any]]) -> int | None:
    """The number of bundles among predictions; None for predictions without bundles."""
    if not any("bundle" in row for row in rows):
        return None
    return len({row.get("bundle", ("alone", row["id"])) for row in rows})


def add_bundles(
    result: Mapping[str, Any], predictions: Mapping[str, Sequence[Mapping[str, Any]]]
) -> dict[str, Any]:
    """The scores of a run with the number of bundles of each split, which an earlier version did
    not write.
    """
    found = {split: n for split, rows in predictions.items() if (n := count_bundles(rows))}
    return {"bundles": found, **result} if found else dict(result)


def remark_few(bundles: int) -> str:
    """A remark on the interval of so many bundles; "" where they are not few."""
    if bundles >= FEW:
        return ""
    return f"{counted(bundles, 'bundle')} are few, so the interval is unsure and often too narrow"
