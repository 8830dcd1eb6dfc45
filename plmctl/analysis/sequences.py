"""Tests that are repeated while data grow: how much of the level each look may spend, and
p-values that hold whenever one stops.

A study that tests after every round has many chances to find a difference by luck. So its looks
divide the level among them. Whatever their dependence, the chance that any of them errs is at most
the sum of their shares (Bonferroni's inequality). The shares follow a spending function
(Lan and DeMets, 1983) that favours later looks: ((n - 2) / (N - 2))^2 after n of N seeds (Kim and
DeMets, 1987). It lies between equal shares (Pocock, 1977) and those of O'Brien and Fleming (1979).
Three seeds rarely show anything at a corrected level, and their share is lost. With ten seeds, six
comparisons and a difference of 1.5 deviations, it finds 69%; equal shares find 59%.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from plmctl.analysis.statistics import ALPHA, Difference
from plmctl.tasks.scores.swaps import correct

FIRST = 3  # seeds before the first look: two say little about a spread

Comparison = tuple[str, str]  # metric, arm


@dataclass(frozen=True)
class Look:
    """One look at the differences of a study.

    Args:
        seeds: The number of seeds of every arm that was still open.
        share: The share of the level that this look may spend.
        differences: The differences of the arms that were still open.
    """

    seeds: int
    share: float
    differences: Mapping[Comparison, Difference]


@dataclass(frozen=True)
class Evidence:
    """A comparison after all looks so far.

    Args:
        p: The smallest of p / share over its looks, at most 1; it is below a level with at most
            that probability where there is no difference, whenever one stops.
        p_holm: The same after Holm's correction over all comparisons.
        level: The level of the plain p-value at the newest look: its share of ALPHA / m, the first
            step of Holm's correction for m comparisons. It is one for all, whatever was observed.
        share: The share of the newest look.
        difference: The difference at the look that gave the smallest.
    """

    p: float
    p_holm: float
    level: float
    share: float
    difference: Difference


def spend(seeds: int, most: int) -> float:
    """The share of the level that is spent by the end of a look.

    Args:
        seeds: The number of seeds at this look; nothing is spent before FIRST.
        most: The largest possible number, fixed in advance.
    """
    return max(0, seeds - FIRST + 1) ** 2 / (most - FIRST + 1) ** 2


def evaluate_looks(
    looks: Sequence[Look], family: Collection[Comparison]
) -> dict[Comparison, Evidence]:
    """Every comparison that was looked at with a p-value.

    Args:
        looks: the oldest first. A single one with the whole level is the ordinary test.
        family: all comparisons that Holm's correction is for; one that has no p-value yet counts
            from the first look on, so that a decision is never taken back.
    """
    best: dict[Comparison, tuple[float, Difference]] = {}
    shares: dict[Comparison, float] = {}
    for look in looks:
        for name, difference in look.differences.items():
            if difference.p is None:
                continue
            p = min(1.0, difference.p / look.share)
            if name not in best or p < best[name][0]:
                best[name] = p, difference
            shares[name] = look.share
    ps = [best[name][0] if name in best else 1.0 for name in family]
    level = ALPHA / max(1, len(ps))
    return {
        name: Evidence(best[name][0], p_holm, level * shares[name], shares[name], best[name][1])
        for name, p_holm in zip(family, correct(ps), strict=True)
        if name in best and p_holm is not None
    }
