"""Tests of two systems on the same examples, against SciPy, loops, and all swaps that there are."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from plmctl.analysis.paired import compare_form, count_discordant, find_share_interval, find_tests
from plmctl.tasks.scores.labels import score_labels
from plmctl.tasks.scores.resampling import Sums
from plmctl.tasks.scores.swaps import SWAPS, SwapTest


def mean_of(values: list[float]) -> Sums:
    """The mean, as a form of a score."""
    return Sums(np.stack([values, np.ones(len(values))], 1), lambda sums: sums[:, 0] / sums[:, 1])


@pytest.mark.parametrize("division", [(0, 0), (1, 0), (3, 9), (12, 30), (7, 7), (9_000, 8_900)])
def test_mcnemar_is_that_of_scipy(division: tuple[int, int]) -> None:
    stats = pytest.importorskip("scipy.stats")
    b, c = division
    first = [True] * b + [False] * c + [True, True, False]
    second = [False] * b + [True] * c + [True, True, False]
    found = count_discordant(first, second)
    assert (found.first, found.second) == (b, c)
    exact = stats.binomtest(b, b + c, 0.5).pvalue if b + c else 1.0
    assert found.exact == pytest.approx(exact)


def test_interval_and_p_value_of_many_are_those_of_the_normal_distribution() -> None:
    stats = pytest.importorskip("scipy.stats")
    rng = np.random.default_rng(1)
    a = rng.random(200)
    b = a + rng.normal(0.02, 0.15, size=200)
    found = compare_form(mean_of([*a, *b]), 200, samples=4000, seed=0)
    error = (b - a).std() / np.sqrt(200)
    assert found.low == pytest.approx((b - a).mean() - 1.96 * error, abs=0.15 * error)
    assert found.high == pytest.approx((b - a).mean() + 1.96 * error, abs=0.15 * error)
    assert found.test.p == pytest.approx(stats.ttest_rel(b, a).pvalue, abs=0.02)
    assert found.test.swaps == SWAPS


def test_the_same_answers_differ_in_nothing() -> None:
    values = [0.0, 1.0, 1.0]
    found = compare_form(mean_of(values + values), 3, samples=100, seed=0)
    assert (found.mean, found.test) == (0.0, SwapTest(1.0, None))
    assert found.low is None  # what other examples would show is not known


def test_draws_in_several_blocks_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    score = mean_of([0.1, 0.7, 0.3, 0.5, 0.2, 0.9])
    asked = {"samples": 100, "seed": 3}
    whole = compare_form(score, 3, **asked)
    monkeypatch.setattr("plmctl.tasks.scores.swaps.ROOM", 21)
    assert compare_form(score, 3, **asked) == whole


def test_shares_of_few_examples() -> None:
    """Agresti and Min, 2005, by their formula: of four examples none is right by either."""
    none, n = np.zeros(4), 6
    low, high = find_share_interval(none, none)
    assert (low, high) == pytest.approx((-1.96 * 1 / n, 1.96 * 1 / n), abs=1e-4)
    left = np.array([1, 1, 0, 0, 0, 1, 0, 0, 0, 0])
    right = np.array([1, 1, 1, 1, 1, 0, 1, 1, 0, 0])
    b, c, n = 1.5, 5.5, 12
    half = 1.959964 * ((b + c) - (c - b) ** 2 / n) ** 0.5
    wanted = ((c - b - half) / n, (c - b + half) / n)
    assert find_share_interval(left, right) == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize("bundled", [False, True])
def test_p_of_other_predictions_is_that_of_mcnemar(bundled: bool) -> None:
    """2 rows right in the first alone, 5 in the second alone, of 60; in bundles of two the rows
    agree, so that 2 against 5 bundles count.
    """

    def predict(wrong: set[int]) -> list[dict[str, Any]]:
        return [
            {"id": str(n), "gold": "ab"[n % 2], "guess": "ab"[(n + (n // size in wrong)) % 2]}
            | ({"bundle": str(n // 2), "probabilities": None} if bundled and n != 119 else {})
            for n in range(60 * size)
        ]

    size = 1 + bundled
    own, other = predict({0, 1, 2, 3, 4, 9}), predict({5, 6, 9})
    score = partial(score_labels, names=["accuracy"])
    found = find_tests(own, {"words": other, "unlike": other[1:]}, score, "accuracy")
    side = [n not in wrong for wrong in ({0, 1, 2, 3, 4}, {5, 6}) for n in range(60)]
    exact = count_discordant(side[:60], side[60:]).exact
    assert found == {"words": {"p": pytest.approx(exact), "swaps": None}}
