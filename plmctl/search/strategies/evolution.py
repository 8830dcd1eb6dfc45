"""Evolution by tournaments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from plmctl.core.errors import find_meant, nearest
from plmctl.core.parts import part_of
from plmctl.core.values import Count
from plmctl.search.space import Space
from plmctl.search.strategy import Individual, New, Proposal, SearchStrategy, SearchView

LEAVING = 1  # third number of the seed by which one is chosen to leave


@part_of("strategy")
class Evolution(SearchStrategy):
    """Evolution by tournaments (Real et al., 2019, section 3): of a sample of the population, the
    best one is changed once, trained, and joins; one of the population leaves.

    Args:
        population: The size of the population.
        sample: The size of a sample.
        leaves: Who leaves: the `oldest` (aging evolution), or the `worst` of another sample.
        start: Names of points of the space, with which the population begins; others are drawn.
    """

    def __init__(
        self,
        population: Count = 20,
        sample: Count = 5,
        leaves: Literal["oldest", "worst"] = "oldest",
        start: Sequence[str] = (),
    ) -> None:
        self.population, self.sample, self.leaves = population, sample, leaves
        self.start = tuple(start)

    def problems(self, space: Space, full: int) -> str | None:
        """A start that the space does not know, or a sample above the population."""
        for name in self.start:
            if name not in space.seeds():
                known = ", ".join(space.seeds()) or "none"
                near = nearest(name, space.seeds())
                meant = find_meant(name, space.seeds()) or "<a name>"
                return (
                    f"has no point '{name}'{near}; there are: {known}"
                    f"\n  fix: strategy.start=[{meant}]"
                )
        if self.sample > self.population:
            return (
                f"has {self.population} individuals in strategy.population, fewer than"
                f" strategy.sample\n  fix: strategy.sample={self.population}"
            )
        return None

    def propose(self, view: SearchView) -> Proposal | None:
        """A child of the population, or a first individual."""
        alive: list[Individual] = []
        for step in view.told:
            self._join(view, alive, view.individuals[step.individual])
        return self._bear(view, alive)

    def _join(self, view: SearchView, alive: list[Individual], newest: Individual) -> None:
        """Take an individual into the population; where that is full, one leaves."""
        alive.append(newest)
        if len(alive) > self.population:
            del alive[self._choose_leaving(view, alive, newest.number)]

    def _choose_leaving(self, view: SearchView, alive: Sequence[Individual], newest: int) -> int:
        if self.leaves == "oldest":
            return 0
        random = np.random.default_rng([view.seed, newest, LEAVING])
        drawn = random.integers(len(alive), size=self.sample)
        return min(map(int, drawn), key=lambda place: (view.score(alive[place]), place))

    def _bear(
        self, view: SearchView, alive: Sequence[Individual], updates: int | None = None
    ) -> New | None:
        """The next new individual.

        Args:
            alive: The population.
            updates: The updates of its first step; None: a whole training.
        """
        number = len(view.individuals)
        if number < len(self.start):
            return New(view.space.seeds()[self.start[number]], updates=updates)
        fit = [each for each in alive if each.fit]
        if number < self.population or not fit:
            return view.propose(updates=updates)
        drawn = [fit[place] for place in view.random.integers(len(fit), size=self.sample)]
        best = max(drawn, key=lambda each: (view.score(each), -each.number))
        child = view.propose(
            lambda random: view.space.mutate(best.point, random),
            parent=best.number,
            updates=updates,
        )
        return child or view.propose(updates=updates)
