"""P-values by swaps, against SciPy and loops over all swaps that there are."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from plmctl.tasks.scores import metrics
from plmctl.tasks.scores.bundles import bundle_rows, score_bundles
from plmctl.tasks.scores.class_counts import OfCounts
from plmctl.tasks.scores.resampling import RankCorrelation, Sums, Whole, find_forms
from plmctl.tasks.scores.swaps import SLOW, STATES, SWAPS, SwapTest, find_chances, find_grid


def mean_of(first: Sequence[float], second: Sequence[float]) -> Sums:
    """The mean of each system, as a form of a score."""
    values = np.array([*first, *second])
    parts = np.stack([values, np.ones(len(values))], 1)
    return Sums(parts, lambda sums: sums[:, 0] / sums[:, 1])


def label(golds: str, first: str, second: str) -> list[dict[str, Any]]:
    """The predictions of the first system, then of the second."""
    pairs = ((n, gold, side[n]) for side in (first, second) for n, gold in enumerate(golds))
    return [{"id": str(n), "gold": gold, "guess": guess} for n, gold, guess in pairs]


def score_rows(rows: Any) -> dict[str, float]:
    sides = [[row[side] for row in rows] for side in ("gold", "guess")]
    return {name: score(*sides) for name, score in metrics.by_name("a").items()}


def score_tags(rows: Any) -> dict[str, float]:
    pairs = [pair for row in rows for pair in zip(row["gold"], row["guess"], strict=True)]
    return {"accuracy": sum(gold == guess for gold, guess in pairs) / len(pairs)}


def try_all(rows: list[dict[str, Any]], name: str) -> float:
    """The share of all swaps of rows with at least the difference."""
    n = len(rows) // 2
    gaps = []
    for swaps in itertools.product([False, True], repeat=n):
        places = [(i + n, i) if swap else (i, i + n) for i, swap in enumerate(swaps)]
        left, right = ([rows[own] for own in side] for side in zip(*places, strict=True))
        gaps.append(abs(score_rows(right)[name] - score_rows(left)[name]))
    return sum(gap >= gaps[0] - 1e-9 for gap in gaps) / len(gaps)


GOLDS, FIRST, SECOND = "abaabcaa", "aabbccac", "abaabbab"


@pytest.mark.parametrize("name", ["accuracy", "macro_f1", "matthews", "f1"])
def test_any_score_of_few_examples_has_the_share_of_all_swaps(name: str) -> None:
    rows = label(GOLDS, FIRST, SECOND)
    found = find_forms(rows, score_rows, [name])[name].list_swaps(8).test()
    assert found == SwapTest(pytest.approx(try_all(rows, name)), None)
    whole = Whole(rows, lambda own: score_rows(own)[name]).list_swaps(8).test()
    assert whole == SwapTest(pytest.approx(found.p), None)


@pytest.mark.parametrize("unit", [1.0, 0.1, 1 / 3])
def test_means_on_a_grid_are_exact_as_those_of_scipy(unit: float) -> None:
    stats = pytest.importorskip("scipy.stats")
    steps = unit * np.array([3, -1, 2, 0, 1, 1, -2, 4, 5, 1])
    found = mean_of(steps, np.zeros(10)).list_swaps(10).test()
    how: dict[str, Any] = {"permutation_type": "samples", "n_resamples": np.inf}
    oracle = stats.permutation_test((steps,), np.mean, **how)
    assert found == SwapTest(pytest.approx(oracle.pvalue), None)


@pytest.mark.parametrize("unit", [1.0, 0.1, 1 / 3])
def test_sums_are_counted_where_the_choices_are_too_many(unit: float) -> None:
    """Of 17 steps of other sizes there are 2^17 choices of signs, all of them summed here."""
    steps = np.arange(1, 18) * np.where(np.arange(17) % 3, 1, -1)
    swaps = mean_of(unit * steps, np.zeros(17)).list_swaps(17)
    assert 2**17 == math.prod((swaps.sizes + 1).tolist()) > STATES
    signs = 1 - 2 * (np.arange(2**17)[:, None] >> np.arange(17) & 1)
    share = (np.abs(signs @ steps) >= abs(steps.sum())).mean()
    assert 0.1 < share < 0.9
    assert swaps.test() == SwapTest(pytest.approx(share), None)


@pytest.mark.parametrize(("b", "c"), [(3, 9), (700, 640), (5000, 5000), (3000, 0)])
def test_shares_have_the_p_of_the_binomial_test(b: int, c: int) -> None:
    """It is never 0, however sure, and 20,000 rows without a difference count nothing."""
    stats = pytest.importorskip("scipy.stats")
    first = np.repeat([1.0, 0.0, 1.0], [b, c, 20_000])
    second = np.repeat([0.0, 1.0, 1.0], [b, c, 20_000])
    found = mean_of(first, second).list_swaps(len(first)).test()
    assert found.swaps is None
    assert found.p == pytest.approx(stats.binomtest(b, b + c).pvalue, rel=1e-8, abs=1e-300)
    assert found.p > 0


def test_bundles_are_swapped_whole() -> None:
    """In bundles of 3, 1 and 2 rows the first system has 1, 0 and 1 more right."""
    rows = label("aaaaaa", "aaabab", "baabbb")
    bundles = [{**row, "bundle": "xxxyzz"[n % 6]} for n, row in enumerate(rows)]
    units = [*bundle_rows(bundles[:6]), *bundle_rows(bundles[6:])]
    form = find_forms(units, score_bundles(score_rows), ["accuracy"])["accuracy"]
    steps = [1, 0, 1]
    signs = itertools.product([1, -1], repeat=3)
    sums = [abs(sum(s * t for s, t in zip(steps, sign, strict=True))) for sign in signs]
    assert form.list_swaps(3).test() == SwapTest(sum(s >= 2 for s in sums) / 8, None)


def test_swaps_that_change_no_score_count_nothing() -> None:
    """Sentences of 2 and 3 words: another wrong tag for a wrong one changes no accuracy."""
    draws = random.Random(1)
    golds = [draws.choices("abc", k=2 + n % 2) for n in range(60)]
    sides = [[[draws.choice(tag + "abc") for tag in gold] for gold in golds] for _ in range(2)]
    rows = [
        {"id": str(n), "gold": gold, "guess": guess}
        for side in sides
        for n, (gold, guess) in enumerate(zip(golds, side, strict=True))
    ]
    form = find_forms(rows, score_tags, ["accuracy"])["accuracy"]
    assert isinstance(form, OfCounts)
    right = [[g == p for g, p in zip(r["gold"], r["guess"], strict=True)].count(True) for r in rows]
    assert math.prod((form.list_swaps(60).sizes + 1).tolist()) > STATES
    wanted = mean_of(right[:60], right[60:]).list_swaps(60).test()
    assert form.list_swaps(60).test() == SwapTest(pytest.approx(wanted.p), None)


def test_random_swaps_have_one_number_and_know_no_order() -> None:
    rng = np.random.default_rng(3)
    rows = 2 * rng.random((2, 60))
    rows[1] += 0.3
    found = mean_of(*rows).list_swaps(60).test()
    assert found.swaps == SWAPS
    order = rng.permutation(60)
    assert mean_of(*rows[::-1, order]).list_swaps(60).test() == found


def test_swaps_of_ranks_are_those_of_the_score_in_any_order() -> None:
    rng = np.random.default_rng(4)
    gold, *sides = rng.integers(5, size=(3, 40)).astype(float)
    places = np.stack([np.tile(gold, 2), np.concatenate(sides)]).astype(int)

    def test(places: np.ndarray) -> SwapTest:
        return RankCorrelation(places).list_swaps(places.shape[1] // 2).test()

    found, order = test(places), rng.permutation(40)
    assert found.swaps == SWAPS
    assert test(places[:, [*order + 40, *order]]) == found
    few = places[:, [*range(9), *range(40, 49)]]
    rows = [{"gold": float(x), "guess": float(y)} for x, y in few.T]

    def score(own: Any) -> float:
        return metrics.spearman([row["gold"] for row in own], [row["guess"] for row in own])

    assert test(few) == SwapTest(pytest.approx(Whole(rows, score).list_swaps(9).test().p), None)


def test_slow_scores_have_fewer_swaps_in_any_order() -> None:
    rows = label("ab" * 8, "ab" * 8, "ba" * 6 + "abab")
    turned = [*rows[16:][::-1], *rows[:16][::-1]]
    tests = [
        Whole(each, lambda own: score_rows(own)["f1"]).list_swaps(16).test()
        for each in (rows, turned)
    ]
    assert tests[0] == tests[1]
    assert tests[0].swaps == SLOW


def test_the_floor_of_random_swaps_is_no_smaller_than_they_know() -> None:
    far = SwapTest(1 / (SWAPS + 1), SWAPS)
    assert (far.spell(), far.spell(4 * far.p), far.way) == (
        "<= 0.0001",
        "<= 0.0004",
        "9,999 random swaps",
    )
    assert SwapTest(1 / (SLOW + 1), SLOW).spell() == "<= 0.0010"
    assert SwapTest(2 / (SWAPS + 1), SWAPS).spell() == "0.0002"
    assert [SwapTest(p, None).spell() for p in (0.00012, 2e-5, 0.25)] == [
        "0.0001",
        "< 0.0001",
        "0.2500",
    ]


def test_a_record_of_an_earlier_version_has_a_p_alone() -> None:
    assert SwapTest.read(0.25) == SwapTest(0.25, 0)
    assert SwapTest.read({"p": 0.25, "swaps": None}).way == "exact"
    assert (SwapTest.read(0.25).way, SwapTest.read(0.0005).spell()) == ("", "0.0005")


def test_a_grid_has_a_unit_that_divides_all_steps() -> None:
    assert find_grid(np.array([0.5, -1 / 3])).tolist() == [3, -2]
    assert find_grid(np.array([1.0, math.pi])) is None
    assert find_chances(3) == pytest.approx([1 / 8, 3 / 8, 3 / 8, 1 / 8])
