"""Asynchronous successive halving."""

from __future__ import annotations

from plmctl.core.parts import part_of
from plmctl.core.values import Count
from plmctl.search.space import Space
from plmctl.search.strategies.halving import Rate, choose_least, find_late_rung, list_rungs
from plmctl.search.strategy import Longer, Proposal, SearchStrategy, SearchView


@part_of("strategy")
class Asha(SearchStrategy):
    """Asynchronous successive halving (Li et al., 2020, algorithm 2): nobody waits for a rung.

    A rung that n individuals have reached lets the best `floor(n / rate)` train on, the best one
    first, and the highest rung comes first. Where nobody may train on, a new individual begins. A
    failed one counts among the n. Ties go to the individual that began first.

    Args:
        least: The updates of the first rung; null: a ninth of a whole training.
        rate: The factor from one rung to the next.
    """

    one_goal = True
    pauses = True

    def __init__(self, least: Count | None = None, rate: Rate = 3) -> None:
        self.least, self.rate = least, rate

    def problems(self, space: Space, full: int) -> str | None:
        """A first rung behind the end of a training."""
        return find_late_rung(self.least, full)

    def propose(self, view: SearchView) -> Proposal | None:
        """Go on with one, or begin another."""
        rungs = list_rungs(choose_least(self.least, view.full), self.rate, view.full)
        for rung in range(len(rungs) - 2, -1, -1):
            there = [each for each in view.individuals if len(each.results) > rung]
            best = sorted(there, key=lambda each: (-each.results[rung].fitness[0], each.number))
            for each in best[: len(there) // self.rate]:
                if len(each.steps) == rung + 1 and each.fit:
                    return Longer(each.number, rungs[rung + 1])
        return view.propose(updates=rungs[0])
