"""Predictions that count together, as units that are drawn, swapped and compared as a whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from plmctl.core.terminal import counted
from plmctl.tasks.record import Predictions

FEW = 30  # bundles; tests and intervals from fewer are often too sure (Cameron et al., 2008)
# the way in which intervals of scores of bundles are found
DRAWN = (
    "the middle 95% of the scores of 1,000 random draws of whole bundles (bootstrap); for a score"
    " that counts bundles, such as exact, Wilson's formula"
)
# the entry of result.json with the number of bundles of each split that are in train, too
KNOWN = "bundles_in_train"
Row = dict[str, Any]
Score = Callable[[Predictions], Mapping[str, float]]


def bundle_rows(rows: Sequence[Row]) -> list[Row]:
    """One row for each bundle, in the order of their first predictions: lists of its labels, and
    in `rows` the predictions themselves. One without a bundle stands alone.

    Examples of one bundle are not independent: draws of single ones would break questions apart and
    make intervals too narrow (Efron and Tibshirani, 1993, ch. 8).
    """
    found = ([rows[number] for number in own] for own in group_bundles(rows))
    return [
        {
            "id": own[0]["id"],
            "gold": [str(row["gold"]) for row in own],
            "guess": [str(row["guess"]) for row in own],
            "rows": own,
        }
        for own in found
    ]


def group_bundles(rows: Predictions) -> list[list[int]]:
    """The numbers of the rows of each bundle, in the order of their first rows. A row without a
    bundle is one of its own.
    """
    found: dict[Any, list[int]] = {}
    for number, row in enumerate(rows):
        found.setdefault(_spell_bundle(row) or number, []).append(number)
    return list(found.values())


def score_bundles(score: Score) -> Score:
    """`score` on the rows by `bundle_rows`; a bundle that was drawn twice is two."""

    def measure(units: Sequence[Mapping[str, Any]]) -> Mapping[str, float]:
        return score([{**row, "bundle": n} for n, unit in enumerate(units) for row in unit["rows"]])

    return measure


def count_bundles(rows: Predictions) -> int | None:
    """The number of bundles among predictions; None for predictions without bundles."""
    return len(group_bundles(rows)) if any(map(_spell_bundle, rows)) else None


def remark_alone(rows: Predictions) -> str:
    """A remark on rows without a bundle; "" where all or none have one."""
    alone = sum(not _spell_bundle(row) for row in rows)
    if alone in (0, len(rows)):
        return ""
    count = "counts as one" if alone == 1 else "count as one each"
    return f"{counted(alone, 'row')} without a bundle {count}"


def share_bundles(left: Sequence[Row], right: Sequence[Row]) -> str:
    """Give rows without a bundle that of the same example on the other side, and return the id of
    the first example whose bundles differ; "" where none do.
    """
    sides = (left, right)
    known = [any(map(_spell_bundle, rows)) for rows in sides]
    if all(known):
        pairs = zip(left, right, strict=True)
        named = (row["id"] for row, other in pairs if _spell_bundle(row) != _spell_bundle(other))
        return next(named, "")
    if any(known):
        have, lack = (left, right) if known[0] else (right, left)
        for row, other in zip(have, lack, strict=True):
            other["bundle"] = row.get("bundle")
    return ""


def _spell_bundle(row: Mapping[str, Any]) -> str:
    """The bundle as a table has it, where all values are texts; "" for a blank one."""
    bundle = row.get("bundle")
    return "" if bundle is None or not str(bundle).strip() else str(bundle)


def add_bundles(
    result: Mapping[str, Any], predictions: Mapping[str, Predictions]
) -> dict[str, Any]:
    """The scores of a run with the number of bundles of each split, which an earlier version did
    not write.
    """
    found = {split: n for split, rows in predictions.items() if (n := count_bundles(rows))}
    return {"bundles": found, **result} if found else dict(result)


def spell_bundles(bundles: int | None) -> str:
    """` in 18 bundles`; "" for examples without bundles."""
    return "" if bundles is None else f" in {counted(bundles, 'bundle')}"


def spell_known(split: str, known: int, bundles: int) -> str:
    """A remark on bundles of a split that training has read rows of."""
    have = "is" if known == 1 else "are"
    return (
        f"{known:,} of {counted(bundles, 'bundle')} of {split} {have} in train, too: the score does"
        " not say how new bundles are answered"
    )


def list_known(result: Mapping[str, Any] | None) -> list[str]:
    """The remark by `spell_known` on each split of a run that has such bundles."""
    known, bundles = ((result or {}).get(name) or {} for name in (KNOWN, "bundles"))
    return [spell_known(split, n, bundles[split]) for split, n in known.items()]


def remark_few(bundles: int) -> str:
    """A remark on the interval of so many bundles; "" where they are not few."""
    if bundles >= FEW:
        return ""
    return f"{counted(bundles, 'bundle')} are few, so the interval is unsure and often too narrow"
