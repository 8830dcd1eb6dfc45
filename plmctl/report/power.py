"""What a comparison could have seen: the smallest true difference that its t-test would have
detected, by the noncentral t distribution.
"""

from __future__ import annotations

import functools
import math

from plmctl.report.statistics import ALPHA, Difference, find_root, quantile

POWER = 0.8  # the usual one (Cohen, 1988)
_STEP = 0.1  # of the integral over the normal distribution, from -_WIDE to _WIDE
_WIDE = 8.0


def find_detectable(difference: Difference | None, level: float | None) -> float | None:
    """The smallest true difference that so many seeds with this spread detect with probability
    POWER.

    Args:
        difference: as it was measured; its spread is taken for the true one.
        level: of its p-value, before corrections.

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
        seeds: Of each arm, 2 or more.
        comparisons: That are corrected for.
    """
    return _find_noncentrality(seeds - 1, ALPHA / comparisons) / math.sqrt(seeds)


def compute_power(noncentrality: float, freedom: float, critical: float) -> float:
    """The probability that a two-sided t-test is significant.

    P(|Z + d| > t S) for a normal Z, the noncentrality d, the critical value t, and f S^2 from chi
    squared with f degrees of freedom (Johnson and Welch, 1940), integrated over Z.

    Args:
        noncentrality: the true difference, in standard errors.
        freedom: degrees of freedom.
        critical: the t from which on the test is significant.
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
