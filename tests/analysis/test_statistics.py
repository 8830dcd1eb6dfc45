"""Student's t, Welch, Holm and verdicts against SciPy and against their definitions written out."""

from __future__ import annotations

import itertools
import math
import random

import pytest
from scipy import special, stats

from plmctl.analysis.sequences import Look, evaluate_looks
from plmctl.analysis.statistics import (
    Difference,
    compare,
    compare_pairs,
    compare_unpaired,
    incomplete_beta,
    judge,
    quantile,
    subtract,
    summarise,
    two_sided,
)
from plmctl.report.charts import shorten_number
from plmctl.report.text import format_number
from plmctl.tasks.scores.swaps import correct

FREEDOMS = (1, 2, 3, 4.5, 9, 30, 200)


@pytest.mark.parametrize("a", [0.5, 1, 2.5, 40])
@pytest.mark.parametrize("b", [0.5, 3, 17])
def test_incomplete_beta(a: float, b: float) -> None:
    for x in (0.0, 1e-9, 0.01, 0.3, 0.5, 0.77, 0.999, 1.0):
        assert incomplete_beta(a, b, x) == pytest.approx(
            special.betainc(a, b, x), rel=1e-10, abs=1e-300
        )


@pytest.mark.parametrize("freedom", FREEDOMS)
def test_students_t(freedom: float) -> None:
    for t in (0.0, 1e-6, 0.3, 1.0, 2.5, 12.7, 1e3):
        assert two_sided(t, freedom) == pytest.approx(2 * stats.t.sf(t, freedom), rel=1e-9)
        assert two_sided(-t, freedom) == two_sided(t, freedom)
    for p in (0.5, 0.05, 0.01, 1e-6):
        assert quantile(p, freedom) == pytest.approx(stats.t.isf(p / 2, freedom), rel=1e-9)


def test_endless_freedom_is_the_normal_distribution() -> None:
    assert two_sided(1.96, math.inf) == pytest.approx(2 * stats.norm.sf(1.96), rel=1e-12)
    assert quantile(0.05, math.inf) == pytest.approx(stats.norm.isf(0.025), rel=1e-9)


@pytest.mark.parametrize("n", [2, 3, 5, 12])
def test_paired(n: int) -> None:
    draw = random.Random(n)
    a, b = ([draw.gauss(middle, 0.2) for _ in range(n)] for middle in (1.0, 1.1))
    found, wanted = compare_pairs(a, b), stats.ttest_rel(a, b)
    interval = wanted.confidence_interval(0.95)
    assert (found.p, found.low, found.high) == pytest.approx(
        (wanted.pvalue, interval.low, interval.high), rel=1e-9
    )
    assert found.mean == pytest.approx(sum(a) / n - sum(b) / n)
    assert found.n == n
    wider = wanted.confidence_interval(0.99)
    assert found.interval(0.01) == pytest.approx((wider.low, wider.high), rel=1e-9)


@pytest.mark.parametrize(("n", "m"), [(2, 2), (3, 5), (9, 4)])
def test_welch(n: int, m: int) -> None:
    draw = random.Random(10 * n + m)
    a, b = [draw.gauss(1.0, 0.1) for _ in range(n)], [draw.gauss(1.3, 0.4) for _ in range(m)]
    found, wanted = compare_unpaired(a, b), stats.ttest_ind(a, b, equal_var=False)
    interval = wanted.confidence_interval(0.95)
    assert (found.p, found.low, found.high) == pytest.approx(
        (wanted.pvalue, interval.low, interval.high), rel=1e-9
    )


def test_the_same_difference_everywhere() -> None:
    """A t divides by the spread: without one there is neither p nor interval nor verdict."""
    difference = compare_pairs([1.5, 2.5, 3.5], [1, 2, 3])
    assert difference == Difference(0.5, None, None, None, 3, "no spread")
    assert difference.interval(0.05) is None
    assert judge("higher", difference, difference.p) == "undecided"
    assert compare_pairs([1, 2], [1, 2]).p is None
    assert compare_unpaired([3, 3], [2, 2]).p is None
    tested = evaluate_looks([Look(3, 1.0, {("loss", "fast"): difference})], [("loss", "fast")])
    assert tested == {}


@pytest.mark.parametrize(
    ("a", "b", "difference"),
    [
        (0.4482755, 0.448276, 0.0),  # a mean of two scores, which have six digits
        (0.448275, 0.448276, -1e-6),
        (1e-9, 2e-9, -1e-9),
        (-123456.5, -123456.0, 0.0),
        (0.0, 0.0, 0.0),
    ],
)
def test_digits_that_are_not_stored_make_no_difference(
    a: float, b: float, difference: float
) -> None:
    for found in (
        subtract(a, b),
        compare_pairs([a, a], [b, b]).mean,
        compare_unpaired([a, a], [b, b]).mean,
        getattr(compare({0: a}, {0: b}), "mean", None),
    ):
        assert found == pytest.approx(difference, rel=1e-6, abs=0)
    assert subtract(math.inf, 3.0) == math.inf


def test_pairs_are_made_by_seed() -> None:
    arm, baseline = {2: 5.0, 0: 1.0, 1: 2.0}, {0: 0.5, 1: 1.0, 2: 3.0, 7: 99.0}
    assert compare(arm, baseline) == compare_pairs([5.0, 1.0, 2.0], [3.0, 0.5, 1.0])
    assert compare({0: 1.0, 1: 2.0}, {8: 1.0, 9: 4.0}) == compare_unpaired([1.0, 2.0], [1.0, 4.0])
    assert compare({0: 1.0}, {0: 3.0}) == Difference(-2.0, None, None, None, 1, "none")
    assert compare({}, {0: 3.0}) is None


def literal_holm(ps: list[float]) -> list[float]:
    """Holm (1979) as a test at every level: p is rejected at alpha if all smaller ones are, each at
    alpha / (m - k + 1).

    The corrected p is the smallest alpha that rejects; candidates are where a threshold is met
    exactly.
    """
    order = sorted(range(len(ps)), key=lambda place: ps[place])

    def rejected(alpha: float) -> set[int]:
        found = set()
        for k, place in enumerate(order):
            if ps[place] * (len(ps) - k) > alpha * (1 + 1e-12):
                break
            found.add(place)
        return found

    levels = sorted(
        {min(1.0, p * factor) for p, factor in itertools.product(ps, range(1, len(ps) + 1))}
    )
    return [
        next((level for level in levels if place in rejected(level)), 1.0)
        for place in range(len(ps))
    ]


@pytest.mark.parametrize("seed", range(8))
def test_holm_against_its_definition(seed: int) -> None:
    draw = random.Random(seed)
    ps = [draw.random() ** 3 for _ in range(seed + 1)]
    assert correct(ps) == pytest.approx(literal_holm(ps))


def test_holm_passes_over_what_has_no_p() -> None:
    assert correct([0.01, None, 0.04, 0.03]) == pytest.approx([0.03, None, 0.06, 0.06])
    assert correct([]) == []


def test_spread() -> None:
    assert summarise([1.0, 2.0, 4.0]) == pytest.approx((7 / 3, stats.tstd([1.0, 2.0, 4.0])))
    assert summarise([3.0]) == (3.0, None)


@pytest.mark.parametrize(
    ("expected", "mean", "p", "verdict"),
    [
        ("higher", 0.2, 0.01, "held"),
        ("higher", -0.2, 0.01, "not held"),
        ("higher", 0.2, 0.05, "undecided"),
        ("lower", -0.2, 0.049, "held"),
        ("lower", 0.2, 0.0, "not held"),
        ("lower", 0.0, 0.0, "undecided"),
        ("lower", -0.2, None, "undecided"),
        ("", 0.2, 0.0, ""),
    ],
)
def test_verdicts(expected: str, mean: float, p: float | None, verdict: str) -> None:
    assert judge(expected, Difference(mean, None, None, p, 3, "paired t"), p) == verdict


def test_no_difference_is_undecided() -> None:
    assert judge("higher", None, None) == "undecided"


@pytest.mark.parametrize("unit", [1e100, 1e200, 1e295])
def test_differences_of_absurd_values(unit: float) -> None:
    """Such as the perplexity of a run that exploded."""
    a, b = [unit * x for x in (1.0, 2.0, 1.5)], [unit * x for x in (0.5, 0.25, 0.75, 0.5)]
    found, wanted = (
        compare_unpaired(a, b),
        compare_unpaired([1.0, 2.0, 1.5], [0.5, 0.25, 0.75, 0.5]),
    )
    assert found.p == pytest.approx(wanted.p)
    assert found.mean == pytest.approx(unit * wanted.mean)
    assert found.low == pytest.approx(unit * wanted.low)
    assert len(format_number(found.mean)) < 12
    assert len(shorten_number(found.mean)) < 12


def test_differences_that_rounding_alone_makes_unlike_are_equal() -> None:
    """One example of 383 in both seeds, as six digits store the scores."""
    baseline = [float(f"{n / 383:.6g}") for n in (20, 25)]
    arm = [float(f"{n / 383:.6g}") for n in (21, 26)]
    assert arm[0] - baseline[0] != arm[1] - baseline[1]
    found = compare_pairs(arm, baseline)
    assert (found.test, found.p, found.low) == ("no spread", None, None)
    arm[1] = float(f"{27 / 383:.6g}")
    assert compare_pairs(arm, baseline).test == "paired t"
