"""The course of a search: which steps there are, as a function of the seed and of results.

Step n is proposed as soon as the results of the steps 0 .. n - parallel are known, and from these
alone. So the order in which parallel trainings end changes nothing, and the same results make the
same steps after any stop. A strategy without a proposal proposes again once it knows one more
result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from plmctl.core.errors import UsageError
from plmctl.search.space import Point, Space, compute_point_key
from plmctl.search.strategy import (
    Individual,
    Longer,
    New,
    Proposal,
    SearchStep,
    SearchStrategy,
    SearchView,
    StepResult,
)

INDIVIDUALS = "budget of individuals is spent"
NOTHING = "strategy has nothing more to propose"
HOPELESS = 100  # refusals from the first on, after which a search is given up


class HopelessSearch(UsageError):
    """All individuals were refused."""


class Course:
    """The steps of a search so far.

    Args:
        space: The space.
        strategy: The strategy.
        seed: The seed of the search.
        full: The updates of a whole training.
        measure: The updates of a whole training of a point; None: `full` for all.
        parallel: The number of steps that may wait for their results at the same time.
        goals: The number of goals of a fitness.
        most_updates: The most updates of all steps together; None: no limit.
        most_individuals: The most individuals that are trained; None: no limit.
        settle: The result of a step that needs no training; None for one that does.
    """

    def __init__(
        self,
        space: Space,
        strategy: SearchStrategy,
        *,
        seed: int,
        full: int,
        measure: Callable[[Point], int] | None = None,
        parallel: int = 1,
        goals: int = 1,
        most_updates: int | None = None,
        most_individuals: int | None = None,
        settle: Callable[[SearchStep], StepResult | None] = lambda step: None,
    ) -> None:
        self.space, self.strategy, self.seed, self.full = space, strategy, seed, full
        self.measure = measure or (lambda point: full)
        self.parallel, self.goals, self.settle = parallel, goals, settle
        self.most_updates, self.most_individuals = most_updates, most_individuals
        self.steps: list[SearchStep] = []
        self.individuals: list[Individual] = []
        self.results: dict[int, StepResult] = {}
        self.told = 0
        self.end = ""  # why no further step comes; empty before the end

    def take(self, step: int, result: StepResult) -> None:
        """Take the result of a step, in any order."""
        self.results[step] = result

    def advance(self) -> Iterator[SearchStep]:
        """Yield the further steps that follow from the results so far."""
        while not self.end:
            proposal, number = None, len(self.steps)
            while self.told < number - self.parallel + 1:
                if not self._tell():
                    return
            while (proposal := self._propose(number)) is None and not self.end:
                if self.told == number:
                    self.end = f"The {INDIVIDUALS if self._is_closed() else NOTHING}."
                elif not self._tell():
                    return
            if proposal is not None and (step := self._add(proposal)):
                yield step
        while self.told < len(self.steps) and self._tell():
            pass  # trainings that ran when the budget was spent count, too

    @property
    def over(self) -> bool:
        """Whether no further step comes, and all results are known."""
        return bool(self.end) and len(self.results) == len(self.steps)

    def count_updates(self) -> int:
        """The updates of all steps, those of running steps counted as planned."""
        return sum(
            result.updates if (result := self.results.get(step.number)) else self.plan_updates(step)
            for step in self.steps[: self.told]
        ) + sum(map(self.plan_updates, self.steps[self.told :]))

    def _tell(self) -> bool:
        """Let the next result be known; False where it is not there yet."""
        result = self.results.get(self.told)
        if result is None:
            return False
        step = self.steps[self.told]
        self.individuals[step.individual].results.append(result)
        self.told += 1
        if self.told == HOPELESS and all(each.kind == "refused" for each in self.results.values()):
            raise HopelessSearch(f"the first {HOPELESS} individuals were refused; {self.explain()}")
        return True

    def explain(self) -> str:
        """The reason of the last refusal or failure."""
        lost = ("refused", "failed")
        whys = [each.why for _, each in sorted(self.results.items()) if each.kind in lost]
        return f"the last one: {whys[-1]}" if whys else "none was trained"

    def _propose(self, number: int) -> Proposal | None:
        random = np.random.default_rng([self.seed, number])
        view = SearchView(
            space=self.space,
            full=self.full,
            parallel=self.parallel,
            seed=self.seed,
            random=random,
            individuals=self.individuals,
            told=self.steps[: self.told],
            steps=self.steps,
            goals=self.goals,
            closed=self._is_closed(),
        )
        proposal = self.strategy.propose(view)
        return None if isinstance(proposal, New) and view.closed else proposal

    def _is_closed(self) -> bool:
        """Whether there are as many individuals as there may be; refused ones do not count."""
        refused = sum(
            bool(each.results) and each.results[-1].kind == "refused" for each in self.individuals
        )
        count = len(self.individuals) - refused
        return self.most_individuals is not None and count >= self.most_individuals

    def _add(self, proposal: Proposal) -> SearchStep | None:
        number = len(self.steps)
        if isinstance(proposal, Longer):
            individual = self.individuals[proposal.individual]
            step = SearchStep(
                number,
                individual.number,
                individual.point,
                proposal.updates,
                individual.parent,
                self.told,
            )
        else:
            individual = Individual(len(self.individuals), proposal.point, proposal.parent)
            updates = proposal.updates or self.measure(proposal.point)
            step = SearchStep(
                number, individual.number, proposal.point, updates, proposal.parent, self.told
            )
        planned = self.count_updates() + step.updates - individual_updates(individual)
        if self.most_updates is not None and planned > self.most_updates:
            self.end = "The budget of updates is spent."
            return None
        if individual.number == len(self.individuals):
            self.individuals.append(individual)
        individual.steps.append(step)
        self.steps.append(step)
        if (result := self._copy(step) or self.settle(step)) is not None:
            self.results.setdefault(number, result)
        return step

    def _copy(self, step: SearchStep) -> StepResult | None:
        """The known result of an equal individual that had the same updates."""
        key = compute_point_key(step.point)
        for other in self.individuals[: step.individual]:
            if compute_point_key(other.point) != key:
                continue
            for theirs, result in zip(other.steps, other.results, strict=False):
                if theirs.updates == step.updates:
                    return StepResult(result.fitness, 0, "copied", result.why, 0.0, result.costs)
        return None

    def plan_updates(self, step: SearchStep) -> int:
        """The updates of one step: behind those of the step before."""
        steps = self.individuals[step.individual].steps
        place = steps.index(step)
        return step.updates - (steps[place - 1].updates if place else 0)


def individual_updates(individual: Individual) -> int:
    """The updates of its last step, whether its result is known or not."""
    return individual.steps[-1].updates if individual.steps else 0
