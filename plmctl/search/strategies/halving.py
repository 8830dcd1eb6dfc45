"""Successive halving, and Hyperband."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal

from plmctl.core.parts import part_of
from plmctl.core.values import Count, Rule
from plmctl.search.space import Space
from plmctl.search.strategy import Individual, Longer, Proposal, SearchStrategy, SearchView

Rate = Annotated[int, Rule(lambda n: n >= 2, "2 or more")]


@dataclass(frozen=True)
class Bracket:
    """Individuals that begin together, and the updates at each rung."""

    count: int
    rungs: tuple[int, ...]


def choose_least(least: int | None, full: int) -> int:
    """The updates of the first rung; None: a ninth of a whole training."""
    return least or max(1, full // 9)


def find_late_rung(least: int | None, full: int) -> str | None:
    """A first rung behind the end of a training."""
    if (least or 1) > full:
        return (
            f"takes {full} updates for each training, fewer than strategy.least"
            f"\n  fix: strategy.least={choose_least(None, full)}"
        )
    return None


def list_rungs(least: int, rate: int, full: int) -> tuple[int, ...]:
    """The updates at each rung: least * rate^k, below `full`, and `full`."""
    rungs = [least]
    while rungs[-1] * rate < full:
        rungs.append(rungs[-1] * rate)
    return tuple(rungs) if rungs[-1] == full else (*rungs, full)


def list_brackets(least: int, rate: int, full: int) -> list[Bracket]:
    """The brackets of Hyperband (Li et al., 2018, algorithm 1), the largest one first.

        s_max = floor(log_rate(full / least));  n = ceil((s_max + 1) / (s + 1) * rate^s)

    with rungs full * rate^-s, ..., full, for s from s_max down to 0.
    """
    most = 0
    while least * rate ** (most + 1) <= full:
        most += 1
    return [
        Bracket(
            math.ceil((most + 1) * rate**s / (s + 1)),
            tuple(max(1, round(full / rate**k)) for k in range(s, -1, -1)),
        )
        for s in range(most, -1, -1)
    ]


@part_of("strategy")
class Halving(SearchStrategy):
    """Successive halving (Jamieson and Talwalkar, 2016): of all that have come to a rung, the best
    part trains on.

        kept of n at a rung = floor(n / rate)

    Ties go to the individual that began first.

    Args:
        least: The updates of the first rung; null: a ninth of a whole training.
        rate: The factor from one rung to the next, and of the individuals that leave.
        count: Individuals at the first rung; null: so many that one comes to the end.
        brackets: `one`, or `all` brackets of Hyperband, which differ in their first rung.
    """

    pauses = True
    ends = True

    def __init__(
        self,
        least: Count | None = None,
        rate: Rate = 3,
        count: Count | None = None,
        brackets: Literal["one", "all"] = "one",
    ) -> None:
        self.least, self.rate, self.count, self.brackets = least, rate, count, brackets

    def list_brackets(self, full: int) -> list[Bracket]:
        """The brackets, one after the other."""
        least = choose_least(self.least, full)
        if self.brackets == "all":
            return list_brackets(least, self.rate, full)
        rungs = list_rungs(least, self.rate, full)
        return [Bracket(self.count or self.rate ** (len(rungs) - 1), rungs)]

    def problems(self, space: Space, full: int) -> str | None:
        """A first rung behind the end of a training."""
        return find_late_rung(self.least, full)

    def propose(self, view: SearchView) -> Proposal | None:
        """The next individual of a bracket, or the next that trains on; None while a rung waits."""
        first = 0
        for bracket in self.list_brackets(view.full):
            own = list(view.individuals[first : first + bracket.count])
            if len(own) < bracket.count and (new := view.propose(updates=bracket.rungs[0])):
                return new
            for rung, updates in enumerate(bracket.rungs[1:], 1):
                if any(len(each.results) < rung for each in own):
                    return None
                best = sorted(own, key=lambda each: _rank(view, each, rung))
                own = best[: max(len(own) // self.rate, 0)]
                for each in own:
                    if len(each.steps) == rung:
                        return Longer(each.number, updates)
            first += bracket.count
        return None


def _rank(view: SearchView, individual: Individual, rung: int) -> tuple[float, int]:
    """The order of individuals at a rung, the best first."""
    fitness = individual.results[rung - 1].fitness
    if len(fitness) == 1:
        return -fitness[0], individual.number
    return -view.score(individual), individual.number
