"""Stopping at looks: error rates and decisions against a loop of NumPy and SciPy, in many studies
in which there is no difference; and what a comparison could have seen.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from plmctl.analysis.sequences import FIRST, Evidence, Look, evaluate_looks, spend
from plmctl.analysis.statistics import (
    Difference,
    compare_pairs,
    compute_power,
    find_detectable,
    incomplete_gamma,
    quantile,
)
from tests.marks import mark_slow

MOST = 10  # seeds
ARMS = ("a", "b", "c")
ALPHA = 0.05


def shares(most: int) -> list[float]:
    """The share of each look, from its definition: of the squares up to (N - 2)^2."""
    return [(2 * k - 1) / (most - 2) ** 2 for k in range(1, most - 1)]


@pytest.mark.parametrize("most", [3, 4, 10, 25])
def test_the_whole_level_is_spent_and_no_more(most: int) -> None:
    spent = [spend(seeds, most) for seeds in range(FIRST - 1, most + 1)]
    assert spent[0] == 0.0
    assert spent[-1] == 1.0
    assert np.diff(spent) == pytest.approx(shares(most))
    assert spend(0, most) == 0.0


def draw_studies(count: int, seed: int = 0) -> np.ndarray:
    """[studies, arms, seeds]: differences from one baseline, none of them true."""
    draw = np.random.default_rng(seed)
    baseline = draw.normal(size=(count, 1, MOST))
    return np.asarray(draw.normal(size=(count, len(ARMS), MOST)) - baseline)


def literal_holm(ps: np.ndarray) -> np.ndarray:
    """The comparisons, in columns, that Holm's procedure finds at ALPHA."""
    order = np.argsort(ps, axis=1)
    steps = np.take_along_axis(ps, order, axis=1) <= ALPHA / np.arange(ps.shape[1], 0, -1)
    found = np.zeros_like(steps)
    np.put_along_axis(found, order, np.logical_and.accumulate(steps, axis=1), axis=1)
    return found


def literal_study(differences: np.ndarray, levels: list[float]) -> np.ndarray:
    """Which comparisons of each study are found at any look, an arm that is found being left as
    it is: [studies, arms].
    """
    best = np.ones(differences.shape[:2])
    found = np.zeros(best.shape, bool)
    for seeds, level in zip(range(FIRST, MOST + 1), levels, strict=True):
        part = differences[:, :, :seeds]
        t = part.mean(2) / part.std(2, ddof=1) * math.sqrt(seeds)
        p = 2 * stats.t.sf(np.abs(t), seeds - 1)
        best = np.where(found, best, np.minimum(best, np.minimum(1, p / level)))
        found |= literal_holm(best)
    return found


def run_study(differences: np.ndarray) -> dict[tuple[str, str], Evidence]:
    """The same for one study, [arms, seeds], with the functions of the package."""
    looks: list[Look] = []
    tested: dict[tuple[str, str], Evidence] = {}
    family = [("loss", arm) for arm in ARMS]
    for seeds in range(FIRST, MOST + 1):
        still = [place for place in family if place not in tested or tested[place].p_holm >= ALPHA]
        if not still:
            break
        share = spend(seeds, MOST) - spend(seeds - 1, MOST)
        values = {
            arm: list(map(float, own[:seeds])) for arm, own in zip(ARMS, differences, strict=True)
        }
        own = {place: compare_pairs(values[place[1]], [0.0] * seeds) for place in still}
        looks.append(Look(seeds, share, own))
        tested = evaluate_looks(looks, family)
    return tested


@pytest.mark.slow  # test_every_decision_is_that_of_the_loop stays
def test_stopping_keeps_the_error_rate_and_naive_looks_do_not() -> None:
    studies = draw_studies(40_000)
    wrong = literal_study(studies, shares(MOST)).any(1).mean()
    naive = literal_study(studies, [1.0] * (MOST - 2)).any(1).mean()
    noise = 3 * math.sqrt(ALPHA * (1 - ALPHA) / len(studies))
    assert wrong <= ALPHA + noise
    assert wrong > 0.02  # it is not bought by never finding anything
    assert naive > 0.1
    # a single comparison, whose p-values Holm's correction leaves as they are
    assert literal_study(studies[:, :1], shares(MOST)).mean() <= ALPHA + noise
    assert literal_study(studies[:, :1], [1.0] * (MOST - 2)).mean() > 0.12


@pytest.mark.parametrize("true", [0.0, 1.5, 3.0])
def test_every_decision_is_that_of_the_loop(true: float) -> None:
    studies = draw_studies(150, seed=1) + true * np.array([0, 1, 2])[None, :, None]
    wanted = literal_study(studies, shares(MOST))
    decided = [run_study(study) for study in studies]
    assert [
        [tested["loss", arm].p_holm < ALPHA for arm in ARMS] for tested in decided
    ] == wanted.tolist()
    assert wanted[:, 2].mean() > true / 4


def test_a_decision_stays_and_p_is_that_of_the_best_look() -> None:
    strong = Difference(1.0, 0.9, 1.1, 1e-6, 3, "paired t", 0.02, 2)
    weak = Difference(0.1, -1.0, 1.2, 0.9, 4, "paired t", 0.3, 3)
    one, other = ("loss", "a"), ("loss", "b")
    looks = [Look(3, 0.25, {one: strong}), Look(4, 0.75, {one: weak})]
    first, second = (evaluate_looks(looks[:n], [one, other]) for n in (1, 2))
    assert first[one] == Evidence(4e-6, 8e-6, pytest.approx(0.25 * 0.05 / 2), 0.25, strong)
    assert (second[one].p, second[one].p_holm, second[one].difference) == (4e-6, 8e-6, strong)
    assert second[one].share == 0.75
    assert other not in second  # though it counts in the correction
    alone = evaluate_looks([Look(0, 1.0, {one: weak})], [one])[one]
    assert (alone.p, alone.p_holm, alone.level) == (0.9, 0.9, 0.05)
    both = evaluate_looks([Look(0, 1.0, {one: weak, other: strong})], [one, other])
    assert {tested.level for tested in both.values()} == {0.05 / 2}


def literal_power(noncentrality: float, freedom: float, critical: float) -> float:
    """The chance of either tail given the spread, averaged over spreads by SciPy."""
    return float(
        stats.chi2.expect(
            lambda x: (
                stats.norm.sf(critical * np.sqrt(x / freedom) - noncentrality)
                + stats.norm.sf(critical * np.sqrt(x / freedom) + noncentrality)
            ),
            args=(freedom,),
            epsabs=1e-11,
            limit=400,
        )
    )


@pytest.mark.sampled(3)
@pytest.mark.parametrize("freedom", mark_slow([1, 2, 3, 4.5, 9, 30, 200], slow=(3, 9, 30)))
@pytest.mark.parametrize("level", mark_slow([0.05, 0.004], slow=(0.05,)))
def test_power(freedom: float, level: float) -> None:
    critical = quantile(level, freedom)
    for noncentrality in (0.0, 0.7, 3.0, 8.0):
        wanted = literal_power(noncentrality, freedom, critical)
        assert compute_power(noncentrality, freedom, critical) == pytest.approx(wanted, abs=1e-4)
    difference = Difference(1.0, 0.0, 0.0, 0.5, 3, "paired t", 0.1, freedom)
    noncentrality = (find_detectable(difference, level) or 0.0) / 0.1
    assert literal_power(noncentrality, freedom, critical) == pytest.approx(0.8, abs=1e-6)


def test_power_of_endless_freedom() -> None:
    wanted = stats.norm.sf(1.96 - 2.5) + stats.norm.sf(1.96 + 2.5)
    assert compute_power(2.5, math.inf, 1.96) == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("a", [0.5, 1, 4.5, 100])
def test_incomplete_gamma(a: float) -> None:
    for x in (0.0, 1e-6, 0.3, 1.0, a, 2 * a + 7, 500.0):
        assert incomplete_gamma(a, x) == pytest.approx(stats.gamma.cdf(x, a), rel=1e-9, abs=1e-300)


@pytest.mark.parametrize(("n", "level"), [(3, 0.05), (5, 0.01), (10, 0.05)])
def test_what_could_have_been_seen_is_seen_four_times_of_five(n: int, level: float) -> None:
    """Studies in which the difference is the detectable one, for the true deviation of 2."""
    difference = Difference(0.3, 0.0, 0.0, 0.5, n, "paired t", 2 / math.sqrt(n), n - 1)
    true = find_detectable(difference, level)
    assert true is not None
    pairs = np.random.default_rng(n).normal(true, 2, size=(20_000, n))
    share = (stats.ttest_1samp(pairs, 0, axis=1).pvalue < level).mean()
    assert share == pytest.approx(0.8, abs=0.01)


def test_nothing_is_known_without_a_spread() -> None:
    assert find_detectable(None, 0.05) is None
    assert find_detectable(compare_pairs([1.5, 2.5], [1, 2]), 0.05) is None
    assert find_detectable(Difference(1.0, None, None, None, 1, "none"), 0.05) is None
