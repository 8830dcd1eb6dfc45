"""The worth of a difference between two systems on the same examples: McNemar's test, the paired
bootstrap, approximate randomisation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from plmctl.analysis.statistics import ALPHA, quantile
from plmctl.tasks.scores.bundles import bundle_rows, count_bundles, score_bundles
from plmctl.tasks.scores.resampling import Form, Sums, Whole, find_forms

# [R, n] numbers of examples to [R] scores, of the n of one system followed by the n of the other
Score = Callable[[np.ndarray], np.ndarray]
Rows = Sequence[Mapping[str, Any]]
RowScore = Callable[[Rows], Mapping[str, float]]
TESTED = 2000  # draws of a test in the results of a run
ROOM = 1 << 20  # numbers of a table of draws that is made at once
EQUAL = 1e-9  # differences of scores below it are rounding


@dataclass(frozen=True)
class McNemar:
    """The number of examples that one system alone answers rightly, or of bundles in which it has
    more right answers, for each system.
    """

    first: int
    second: int
    exact: float  # p of as uneven a division or a more uneven one, of a fair coin
    corrected: float  # p by chi-square with Edwards' correction of continuity


@dataclass(frozen=True)
class PairedDifference:
    """The second system against the first, by one score."""

    first: float
    second: float
    low: float | None  # the interval of the difference; None where all draws are equal
    high: float | None
    p: float
    samples: int  # draws of the bootstrap
    swaps: int  # draws of the randomisation; all possible ones where `enumerated`
    enumerated: bool

    @property
    def mean(self) -> float:
        """Second minus first."""
        return self.second - self.first


def count_discordant(first: Sequence[int], second: Sequence[int]) -> McNemar:
    """`p = 2 P(X <= min(b, c))`, X binomial of b + c and 1/2, at most 1; and the p-value of
    `(|b - c| - 1)^2 / (b + c)` by chi-square of one degree of freedom (McNemar, 1947; Edwards,
    1948). With bundles it is the sign test: b and c are those with more right answers by one
    system.

    Args:
        first, second: whether each example is answered rightly, or the number of right answers of
            each bundle, in the same order.
    """
    pairs = list(zip(first, second, strict=True))
    b, c = sum(x > y for x, y in pairs), sum(x < y for x, y in pairs)
    n, least = b + c, min(b, c)
    below = term = 1  # the binomial coefficients n over 0, 1, .. least, all exact
    for k in range(least):
        term = term * (n - k) // (k + 1)
        below += term
    square = max(0, abs(b - c) - 1) ** 2 / n if n else 0.0
    exact = min(1.0, 2 * (below / 2**n))
    return McNemar(b, c, exact, math.erfc(math.sqrt(square / 2)))


def find_share_interval(first: np.ndarray, second: np.ndarray) -> tuple[float, float]:
    """The interval of the difference of two shares of the same examples, for few examples, too.
    With 1/2 more in each cell of the table, b* and c* of n* = n + 2 are right in one alone: `((c* -
    b*) -+ z sqrt((b* + c*) - (c* - b*)^2 / n*)) / n*` (Agresti and Min, 2005).

    Args:
        first, second: [n] whether each example is answered rightly.
    """
    n = len(first) + 2
    b, c = (float((side > other).sum()) + 0.5 for side, other in ((first, second), (second, first)))
    half = quantile(ALPHA, math.inf) * math.sqrt(b + c - (c - b) ** 2 / n)
    return max(-1.0, (c - b - half) / n), min(1.0, (c - b + half) / n)


def compare_scores(
    score: Score, n: int, *, samples: int, seed: int, differs: np.ndarray, drifts: bool = False
) -> PairedDifference:
    """The difference with its interval and p-value.

    The interval: percentiles of the difference over `samples` of n examples drawn with replacement,
    the same for both systems (Efron and Tibshirani, 1993, ch. 13; Koehn, 2004). The p-value: the
    share of swaps that make the difference as large, either way; each swap exchanges the answers to
    an example with probability 1/2. It is `(1 + count) / (1 + samples)`, or the share of all swaps
    where these are not more (Noreen, 1989; Yeh, 2000).

    Args:
        score: The score of draws from the n examples of the first system, then of the second.
        differs: [n] bool, whether it matters who gave which answer to an example.
        drifts: Whether draws drift from the score (`resampling.move_back`), so that their mean is
            moved to the difference.
    """
    both = np.arange(n)[None]
    first, second = float(score(both)[0]), float(score(both + n)[0])
    rng = np.random.default_rng(seed)
    found = [
        score(picks + n) - score(picks)
        for size in _divide(samples, n)
        for picks in [rng.integers(n, size=(size, n))]
    ]
    drawn = np.concatenate(found)
    drawn += (second - first - drawn.mean()) * drifts
    low, high = np.quantile(drawn, [ALPHA / 2, 1 - ALPHA / 2]).tolist()
    if high - low < EQUAL:
        low = high = None
    places = np.flatnonzero(differs)
    enumerated = len(places) < 63 and 2 ** len(places) <= samples
    count, swaps = 0, 2 ** len(places) if enumerated else samples
    for size, start in _chunks(swaps, n):
        swapped = np.zeros((size, n), dtype=np.int64)
        if enumerated:
            numbers = np.arange(start, start + size)[:, None]
            swapped[:, places] = numbers >> np.arange(len(places)) & 1
        else:
            swapped[:, places] = rng.integers(2, size=(size, len(places)))
        difference = score(both + n * (1 - swapped)) - score(both + n * swapped)
        count += int((np.abs(difference) >= abs(second - first) - EQUAL).sum())
    p = count / swaps if enumerated else (1 + count) / (1 + swaps)
    return PairedDifference(first, second, low, high, p, samples, swaps, enumerated)


def compare_form(form: Form, n: int, *, samples: int, seed: int) -> PairedDifference:
    """The difference of two systems by a form of a score; a share has the interval by
    `find_share_interval`.

    Args:
        form: The score of draws from the n examples of the first system, then of the second.
        n: The number of examples.
        samples: The draws of bootstrap and randomisation.
        seed: The seed of the draws.
    """
    how: dict[str, Any] = {"differs": form.differ(n), "drifts": form.drifts}
    found = compare_scores(form, n, samples=samples, seed=seed, **how)
    if isinstance(form, Sums) and form.unit:
        low, high = find_share_interval(*form.parts[:, 0].reshape(2, n))
        return replace(found, low=low * form.unit, high=high * form.unit)
    return found


def find_p(first: Rows, second: Rows, score: RowScore, metric: str) -> float | None:
    """The p-value of the difference between two systems on the same examples, over whole bundles
    where there are some; None where the examples differ, or a score takes long to draw.

    Args:
        first, second: The predictions of each, in the same order.
        score: The scores of predictions.
        metric: The score to compare.
    """
    if [row.get("id") for row in first] != [row.get("id") for row in second] or not first:
        return None
    # one side alone may have probabilities; a row without a bundle has no such value
    kept = set().union(*first) & set().union(*second)
    left, right = (
        [{name: row[name] for name in kept if name in row} for row in own]
        for own in (first, second)
    )
    if count_bundles(left) is not None:
        left, right, score = bundle_rows(left), bundle_rows(right), score_bundles(score)
    form = find_forms([*left, *right], score, [metric])[metric]
    if isinstance(form, Whole):
        return None
    return compare_form(form, len(left), samples=TESTED, seed=0).p


def find_ps(
    own: Rows, others: Mapping[str, Rows], score: RowScore, metric: str
) -> dict[str, float]:
    """{name: p by `find_p`} of the other systems that can be tested."""
    found = {name: find_p(own, rows, score, metric) for name, rows in others.items()}
    return {name: p for name, p in found.items() if p is not None}


def _divide(total: int, n: int) -> Iterator[int]:
    return (size for size, _ in _chunks(total, n))


def _chunks(total: int, n: int) -> Iterator[tuple[int, int]]:
    """(how many, how many before) of `total` draws of n numbers, as many at once as there is room
    for.
    """
    most = max(1, ROOM // max(1, n))
    return ((min(most, total - start), start) for start in range(0, total, most))
