"""Predictions that count together, as units that are drawn, swapped and compared as a whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from plmctl.core.terminal import counted

FEW = 30  # bundles; tests and intervals from fewer are often too sure (Cameron et al., 2008)
# the way in which intervals of scores of bundles are found
DRAWN = "drawn whole: 1,000 draws of the bootstrap, Wilson's of a share of bundles"
NO_BUNDLE = (None, "")  # an empty cell names no bundle
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
        found.setdefault(_name_bundle(row), []).append(row)
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
    if all(row.get("bundle") in NO_BUNDLE for row in rows):
        return None
    return len({_name_bundle(row) for row in rows})


def share_bundles(left: Sequence[Row], right: Sequence[Row]) -> str:
    """Give rows without a bundle that of the same example on the other side, and return the id of
    the first example whose bundles differ; "" where none do.
    """
    sides = (left, right)
    known = [any(row.get("bundle") not in NO_BUNDLE for row in rows) for rows in sides]
    if all(known):
        pairs = zip(left, right, strict=True)
        named = (row["id"] for row, other in pairs if _spell_bundle(row) != _spell_bundle(other))
        return next(named, "")
    if any(known):
        have, lack = (left, right) if known[0] else (right, left)
        for row, other in zip(have, lack, strict=True):
            other["bundle"] = row.get("bundle")
    return ""


def _name_bundle(row: Mapping[str, Any]) -> Any:
    """The bundle of a prediction; one without a name is a bundle of its own."""
    bundle = row.get("bundle")
    return ("alone", row["id"]) if bundle in NO_BUNDLE else bundle


def _spell_bundle(row: Mapping[str, Any]) -> str:
    """The bundle as a table has it, where all values are texts."""
    bundle = row.get("bundle")
    return "" if bundle in NO_BUNDLE else str(bundle)


def add_bundles(
    result: Mapping[str, Any], predictions: Mapping[str, Sequence[Mapping[str, Any]]]
) -> dict[str, Any]:
    """The scores of a run with the number of bundles of each split, which an earlier version did
    not write.
    """
    found = {split: n for split, rows in predictions.items() if (n := count_bundles(rows))}
    return {"bundles": found, **result} if found else dict(result)


def spell_bundles(bundles: int | None) -> str:
    """` in 18 bundles`; "" for examples without bundles."""
    return "" if bundles is None else f" in {counted(bundles, 'bundle')}"


def remark_few(bundles: int) -> str:
    """A remark on the interval of so many bundles; "" where they are not few."""
    if bundles >= FEW:
        return ""
    return f"{counted(bundles, 'bundle')} are few, so the interval is unsure and often too narrow"
