"""The worth of a difference between two arms: Student's t over seeds, a verdict.
The power of a test: the smallest difference that it could have seen.

Every study needs these 90 lines of distributions, so SciPy would cost all users 100 MB; the tests
compare them with SciPy.
"""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from plmctl.core.rounding import DIGITS

LARGEST = 200  # bits of the largest value that the unpaired test takes as it is
ALPHA = 0.05  # level of the tests, after correction; intervals hold 1 - ALPHA each, uncorrected
POWER = 0.8  # the usual one (Cohen, 1988)
_STEP = 0.1  # steps of the integral over the normal distribution, from -_WIDE to _WIDE
_WIDE = 8.0

Verdict = Literal["held", "not held", "undecided", ""]
# of one seed the spread is not known; without a spread there is no t
Test = Literal["paired t", "Welch t", "none", "no spread"]


@dataclass(frozen=True)
class Difference:
    """Arm minus baseline: the mean, its confidence interval, the p-value of "no difference", and
    the number of seeds (or pairs of seeds).
    """

    mean: float
    low: float | None  # None where the spread is unknown or 0
    high: float | None
    p: float | None
    n: int
    test: Test
    error: float | None = None  # standard error of the mean
    freedom: float | None = None  # degrees of freedom of t

    def interval(self, level: float) -> tuple[float, float] | None:
        """The confidence interval that misses the true difference with probability `level`."""
        if self.error is None or self.freedom is None:
            return None
        half = quantile(level, self.freedom) * self.error
        return self.mean - half, self.mean + half


def subtract(a: float, b: float) -> float:
    """`a - b`, and 0 below the last digit with which scores are stored."""
    if not math.isfinite(a - b):
        return a - b
    return a - b if abs(a - b) >= 0.999 * find_unit([a, b]) else 0.0


def find_unit(values: Sequence[float]) -> float:
    """The last digit with which the largest of finite scores is stored; 0 if all are 0."""
    largest = max(map(abs, values))
    return 10.0 ** (math.floor(math.log10(largest)) - DIGITS + 1) if largest else 0.0


def summarise(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean and sample standard deviation (divided by n - 1; None for one value)."""
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None


def compare(arm: Mapping[int, float], baseline: Mapping[int, float]) -> Difference | None:
    """The difference of two arms with values by seed; paired if at least two seeds are in both."""
    both = [seed for seed in arm if seed in baseline]
    if len(both) > 1:
        return compare_pairs([arm[seed] for seed in both], [baseline[seed] for seed in both])
    if len(arm) > 1 and len(baseline) > 1:
        return compare_unpaired(list(arm.values()), list(baseline.values()))
    if not arm or not baseline:
        return None
    mean = subtract(statistics.fmean(arm.values()), statistics.fmean(baseline.values()))
    return Difference(mean, None, None, None, min(len(arm), len(baseline)), "none")


def compare_pairs(arm: Sequence[float], baseline: Sequence[float]) -> Difference:
    """`mean(d) +- t * sd(d) / sqrt(n)` of the differences d of pairs, n - 1 degrees of freedom
    (Student, 1908). Differences that the digits of stored scores cannot tell apart are equal.
    """
    differences = [subtract(a, b) for a, b in zip(arm, baseline, strict=True)]
    mean, deviation = statistics.fmean(differences), statistics.stdev(differences)
    if all(map(math.isfinite, differences)):
        rounding = 2.001 * find_unit([*arm, *baseline])  # each of two scores is half a digit off
        deviation *= max(differences) - min(differences) > rounding
    n = len(differences)
    return _difference(mean, deviation / math.sqrt(n), n - 1, n, "paired t")


def compare_unpaired(arm: Sequence[float], baseline: Sequence[float]) -> Difference:
    """The same for unpaired seeds of unequal variance, degrees of freedom by Welch and
    Satterthwaite (Welch, 1947).
    """
    # a power of 2: squares of squares of absurd values, such as a perplexity of 1e295, overflow
    largest = math.frexp(max(map(abs, (*arm, *baseline))))[1]
    unit = math.ldexp(1.0, max(0, largest - LARGEST))
    arm, baseline = [x / unit for x in arm], [x / unit for x in baseline]
    a, b = (statistics.variance(values) / len(values) for values in (arm, baseline))
    mean = subtract(statistics.fmean(arm), statistics.fmean(baseline))
    below = a * a / (len(arm) - 1) + b * b / (len(baseline) - 1)
    freedom = (a + b) ** 2 / below if below else math.inf
    n, error = min(len(arm), len(baseline)), math.sqrt(a + b)
    return _difference(unit * mean, unit * error, freedom, n, "Welch t")


def judge(expected: str, difference: Difference | None, p: float | None = None) -> Verdict:
    """ "held": the expected sign with a significant p-value; "not held": the other sign,
    significant; otherwise "undecided".
    """
    if not expected:
        return ""
    if difference is None or p is None or p >= ALPHA or not difference.mean:
        return "undecided"
    return "held" if (difference.mean > 0) == (expected == "higher") else "not held"


def two_sided(t: float, freedom: float) -> float:
    """P(|T| >= |t|) of Student's distribution: I_x(f/2, 1/2) at x = f / (f + t^2)."""
    if math.isinf(freedom):
        return math.erfc(abs(t) / math.sqrt(2))
    return 0.0 if math.isinf(t) else incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t))


@functools.cache
def quantile(p: float, freedom: float) -> float:
    """The t >= 0 with `two_sided(t) = p`, by bisection."""
    low, high = 0.0, 1.0
    while two_sided(high, freedom) > p:
        low, high = high, 2 * high
    return find_root(lambda t: two_sided(t, freedom) - p, low, high)


def incomplete_beta(a: float, b: float, x: float) -> float:
    """I_x(a, b), by its continued fraction (Abramowitz and Stegun, 1964, 26.5.8), evaluated from
    the front (Lentz, 1976).
    """
    if x <= 0 or x >= 1:
        return float(x >= 1)
    # the fraction of the other tail converges faster here
    if x > (a + 1) / (a + b + 2):
        return 1 - incomplete_beta(b, a, 1 - x)
    front = (
        math.exp(
            math.lgamma(a + b)
            - math.lgamma(a)
            - math.lgamma(b)
            + a * math.log(x)
            + b * math.log1p(-x)
        )
        / a
    )
    above, below = 1.0, 1 / _off_zero(1 - (a + b) * x / (a + 1))
    value = below
    for m in range(1, 1000):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            above, below = _off_zero(1 + term / above), 1 / _off_zero(1 + term * below)
            value *= above * below
        if abs(above * below - 1) < 1e-15:
            break
    return front * value


def _difference(mean: float, error: float, freedom: float, n: int, test: Test) -> Difference:
    if error <= 1e-12 * abs(mean):  # every seed gave the same difference: mean / error is no t
        return Difference(mean, None, None, None, n, "no spread")
    half, p = quantile(ALPHA, freedom) * error, two_sided(mean / error, freedom)
    return Difference(mean, mean - half, mean + half, p, n, test, error, freedom)


def find_root(
    function: Callable[[float], float], low: float, high: float, *, halvings: int = 200
) -> float:
    """The zero of a decreasing function, by bisection."""
    for _ in range(halvings):
        middle = (low + high) / 2
        low, high = (middle, high) if function(middle) > 0 else (low, middle)
    return (low + high) / 2


def _off_zero(value: float) -> float:
    return value if abs(value) > 1e-300 else 1e-300


def find_detectable(difference: Difference | None, level: float | None) -> float | None:
    """The smallest true difference that so many seeds with this spread detect with probability
    POWER.

    Args:
        difference: The measured difference; its spread is taken for the true one.
        level: The level of its p-value, before corrections.

    Returns:
        None where nothing is known about the spread: one seed, or equal differences.
    """
    if difference is None or level is None or not difference.error or not difference.freedom:
        return None
    return difference.error * _find_noncentrality(difference.freedom, level)


def count_needed(difference: float, deviation: float, level: float = ALPHA) -> float:
    """The number of pairs that detect a mean difference with probability POWER, where the
    differences of pairs have this standard deviation.
    """
    return (_find_noncentrality(math.inf, level) * deviation / difference) ** 2


def find_detectable_deviations(seeds: int, comparisons: int) -> float:
    """The same before anything is measured, in standard deviations of the paired differences, for
    the first of so many comparisons that is found (Holm).

    Args:
        seeds: The seeds of each arm, 2 or more.
        comparisons: The comparisons that the correction is for.
    """
    return _find_noncentrality(seeds - 1, ALPHA / comparisons) / math.sqrt(seeds)


def compute_power(noncentrality: float, freedom: float, critical: float) -> float:
    """The probability that a two-sided t-test is significant.

    P(|Z + d| > t S) for a normal Z, the noncentrality d and the critical value t. It is integrated
    over Z. The variable f S^2 follows chi squared with f degrees of freedom (Johnson and Welch,
    1940).

    Args:
        noncentrality: the true difference, in standard errors.
    """
    if math.isinf(freedom):
        tails = (math.erfc((critical - d) / math.sqrt(2)) for d in (noncentrality, -noncentrality))
        return sum(tails) / 2
    total = 0.0
    for number in range(-round(_WIDE / _STEP), round(_WIDE / _STEP) + 1):
        z = number * _STEP
        ratio = (z + noncentrality) / critical
        total += math.exp(-z * z / 2) * incomplete_gamma(freedom / 2, freedom / 2 * ratio * ratio)
    return total * _STEP / math.sqrt(2 * math.pi)


def incomplete_gamma(a: float, x: float) -> float:
    """The regularised P(a, x), by its series (Abramowitz and Stegun, 1964, 6.5.29)."""
    if x <= 0:
        return 0.0
    if x > a + 12 * math.sqrt(a) + 60:  # the rest is below 1e-12
        return 1.0
    term = math.exp(a * math.log(x) - x - math.lgamma(a + 1))
    total, n = term, a
    while term > 1e-12 * total:
        n += 1
        term *= x / n
        total += term
    return total


@functools.cache
def _find_noncentrality(freedom: float, level: float) -> float:
    """The noncentrality at which the power is POWER."""
    critical, high = quantile(level, freedom), 1.0
    while compute_power(high, freedom, critical) < POWER:
        high *= 2

    def lacking(noncentrality: float) -> float:
        return POWER - compute_power(noncentrality, freedom, critical)

    return find_root(lacking, high / 2, high, halvings=30)
