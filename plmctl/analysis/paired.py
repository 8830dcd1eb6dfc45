"""The worth of a difference between two systems on the same examples: McNemar's test, the paired
bootstrap, and the p-value by swaps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from plmctl.analysis.statistics import ALPHA, quantile
from plmctl.tasks.scores.bundles import bundle_rows, count_bundles, score_bundles, share_bundles
from plmctl.tasks.scores.resampling import Form, Sums, Whole, find_forms
from plmctl.tasks.scores.swaps import SwapTest, split_draws

Rows = Sequence[Mapping[str, Any]]
RowScore = Callable[[Rows], Mapping[str, float]]
EQUAL = 1e-9  # differences of scores below it are rounding


@dataclass(frozen=True)
class McNemar:
    """The number of examples that one system alone answers rightly, or of bundles in which it has
    more right answers, for each system.
    """

    first: int
    second: int
    exact: float  # p of as uneven a division or a more uneven one, of a fair coin


@dataclass(frozen=True)
class PairedDifference:
    """The second system against the first, by one score."""

    first: float
    second: float
    low: float | None  # the interval of the difference; None where all draws are equal
    high: float | None
    test: SwapTest
    samples: int  # draws of the bootstrap; 0 where the interval is by a formula

    @property
    def mean(self) -> float:
        """Second minus first."""
        return self.second - self.first

    def record(self) -> dict[str, Any]:
        """All of it for programs: `p` stands in it with its number of swaps, null where exact."""
        named = {"test": f"swaps, {self.test.way}", "difference": self.mean}
        return {**asdict(self), **asdict(self.test), **named}


def count_discordant(first: Sequence[int], second: Sequence[int]) -> McNemar:
    """`p = 2 P(X <= min(b, c))`, X binomial of b + c and 1/2, at most 1 (McNemar, 1947). With
    bundles it is the sign test: b and c are those with more right answers by one system.

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
    return McNemar(b, c, min(1.0, 2 * (below / 2**n)))


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


def compare_form(form: Form, n: int, *, samples: int, seed: int) -> PairedDifference:
    """The difference of two systems by a form of a score, with its interval and p-value.

    The interval: percentiles of the difference over `samples` of n examples drawn with replacement,
    the same for both systems (Efron and Tibshirani, 1993, ch. 13; Koehn, 2004). A share has that by
    `find_share_interval`. The p-value is by the rule of `plmctl.tasks.scores.swaps`.

    Args:
        form: The score of draws from the n examples of the first system, then of the second.
        n: The number of examples.
        samples: The draws of the bootstrap.
        seed: The seed of these draws.
    """
    both = np.arange(2 * n).reshape(2, n)
    first, second = form(both).tolist()
    test = form.list_swaps(n).test()
    if isinstance(form, Sums) and form.unit:
        low, high = find_share_interval(*form.parts[:, 0].reshape(2, n))
        return PairedDifference(first, second, low * form.unit, high * form.unit, test, 0)
    rng = np.random.default_rng(seed)
    found = [
        form(picks + n) - form(picks)
        for size, _ in split_draws(samples, n)
        for picks in [rng.integers(n, size=(size, n))]
    ]
    drawn = np.concatenate(found)
    drawn += (second - first - drawn.mean()) * form.drifts  # as `resampling.move_back`
    ends = np.quantile(drawn, [ALPHA / 2, 1 - ALPHA / 2])
    known = [None, None] if ends[1] - ends[0] < EQUAL else ends.tolist()
    return PairedDifference(first, second, known[0], known[1], test, samples)


def find_test(first: Rows, second: Rows, score: RowScore, metric: str) -> SwapTest | None:
    """The test of the difference between two systems on the same examples, over whole bundles
    where there are some; None where the examples differ, or a score takes long to draw.

    Args:
        first, second: The predictions of each, in the same order.
        score: The scores of predictions.
        metric: The score to compare.
    """
    if [row.get("id") for row in first] != [row.get("id") for row in second] or not first:
        return None
    left, right = ([{**row} for row in own] for own in (first, second))
    if share_bundles(left, right):
        return None
    # one side alone may have probabilities; a row without a bundle has no such value
    kept = set().union(*left) & set().union(*right)
    left, right = ([{k: row[k] for k in row if k in kept} for row in own] for own in (left, right))
    if count_bundles(left) is not None:
        left, right, score = bundle_rows(left), bundle_rows(right), score_bundles(score)
    form = find_forms([*left, *right], score, [metric])[metric]
    return None if isinstance(form, Whole) else form.list_swaps(len(left)).test()


def find_tests(
    own: Rows, others: Mapping[str, Rows], score: RowScore, metric: str
) -> dict[str, dict[str, Any]]:
    """{name: the record of the test by `find_test`} of the other systems that can be tested."""
    found = {name: find_test(own, rows, score, metric) for name, rows in others.items()}
    return {name: asdict(test) for name, test in found.items() if test is not None}
