"""Evolution with progressive dynamic hurdles."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Literal

from plmctl.core.parts import part_of
from plmctl.core.values import Count
from plmctl.search.space import Space
from plmctl.search.strategies.evolution import Evolution
from plmctl.search.strategy import Individual, Longer, Proposal, SearchView


@part_of("strategy")
class Hurdles(Evolution):
    """Evolution in which only the good train on (So et al., 2019, section 4, algorithm 1).

    A child trains `updates[0]` updates. Where its fitness exceeds the first hurdle, it trains on,
    and so at each hurdle. After `stage` children, a new hurdle is the mean fitness of the members
    of the population with the most updates so far. Nobody trains on for a hurdle that is newer.

    Differs: a member whose training failed has no share in that mean, and a hurdle waits until a
    member has come to it.

    Args:
        population: The size of the population.
        sample: The size of a sample.
        leaves: Who leaves: the `oldest`, or the `worst` of another sample, as in the paper.
        start: Names of points of the space, with which the population begins.
        updates: The updates at each hurdle, rising; the last are those of a whole training.
            Empty: 1/9, 1/3 and all of a whole training.
        stage: The children from one hurdle to the next.
    """

    one_goal = True
    pauses = True

    def __init__(
        self,
        population: Count = 20,
        sample: Count = 5,
        leaves: Literal["oldest", "worst"] = "worst",
        start: Sequence[str] = (),
        updates: Sequence[Count] = (),
        stage: Count = 30,
    ) -> None:
        super().__init__(population, sample, leaves, start)
        self.updates, self.stage = tuple(updates), stage
        self._hurdles: list[float] = []

    def problems(self, space: Space, full: int) -> str | None:
        """Hurdles that do not rise, or lie behind the end of a training."""
        rungs = self._list_rungs(full)
        if sorted(set(rungs)) != list(rungs) or rungs[-1] != full:
            fix = sorted({max(1, full // 9), max(1, full // 3), full})
            return (
                f"takes {full} updates for each training, to which strategy.updates must rise"
                f"\n  fix: strategy.updates={str(fix).replace(' ', '')}"
            )
        return super().problems(space, full)

    def propose(self, view: SearchView) -> Proposal | None:
        """Go on with one that has cleared a hurdle, or a child."""
        rungs = self._list_rungs(view.full)
        alive, onward = self._judge(view, rungs)
        if onward:
            return Longer(onward[0].number, rungs[len(onward[0].steps)])
        return self._bear(view, alive, rungs[0])

    def levels(self, told: Sequence[Individual]) -> Sequence[tuple[int, float]]:
        """The hurdles at the last proposal."""
        most = max((each.steps[-1].updates for each in told), default=0)
        rungs = self.updates or tuple(sorted({step.updates for e in told for step in e.steps}))
        return [(u, h) for u, h in zip(rungs, self._hurdles, strict=False) if u <= most]

    def _list_rungs(self, full: int) -> tuple[int, ...]:
        return self.updates or (max(1, full // 9), max(2, full // 3), max(3, full))

    def _judge(
        self, view: SearchView, rungs: Sequence[int]
    ) -> tuple[list[Individual], list[Individual]]:
        """(the population, individuals behind a hurdle that do not train on yet)."""
        alive: list[Individual] = []
        onward: list[Individual] = []
        self._hurdles = []
        seen: dict[int, int] = {}  # individual: how many of its results were judged
        born = 0
        for step in view.told:
            individual = view.individuals[step.individual]
            rung = seen[step.individual] = seen.get(step.individual, -1) + 1
            fitness = individual.results[rung].fitness[0]
            if rung < len(self._hurdles) and fitness > self._hurdles[rung]:
                onward += [individual] if len(individual.steps) == rung + 1 else []
                continue
            self._join(view, alive, individual)
            born += 1
            if born == self.stage and len(self._hurdles) < len(rungs) - 1:
                self._hurdles += self._raise(alive)
                born = 0
        return alive, onward

    def _raise(self, alive: Sequence[Individual]) -> list[float]:
        """The next hurdle; none where no member has come so far."""
        most = max((len(each.results) for each in alive if each.fit), default=0)
        longest = [e.results[-1].fitness[0] for e in alive if e.fit and len(e.results) == most]
        return [statistics.fmean(longest)] if most == len(self._hurdles) + 1 else []
