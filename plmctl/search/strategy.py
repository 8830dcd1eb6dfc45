"""The interface of a strategy: what is trained next, as a function of the results so far."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from plmctl.core.errors import UsageError
from plmctl.core.parts import base_of
from plmctl.search.space import Point, Space, compute_point_key

TRIES = 1000  # draws until a point is new and can be built

Fitness = tuple[float, ...]  # one number for each goal, larger is better; -inf: failed
Kind = Literal["trained", "failed", "refused", "copied"]


@dataclass(frozen=True)
class SearchStep:
    """One training: an individual, up to a number of updates.

    Args:
        number: The number of the step, from 0.
        individual: The number of the individual, from 0.
        point: The individual's point of the space.
        updates: The updates that it has at the end of the step.
        parent: The individual that it is a change of; None: it was drawn.
        told: The number of results that were known when the step was proposed, the first ones.
    """

    number: int
    individual: int
    point: Point
    updates: int
    parent: int | None = None
    told: int = 0


@dataclass(frozen=True)
class StepResult:
    """The end of a step.

    Args:
        fitness: One number for each goal, larger is better; -inf without one.
        updates: The updates that the step has taken.
        kind: refused: a constraint or an error of composition; copied: of an equal individual.
        why: The reason of a failure or a refusal.
        seconds: The wall-clock time of the step.
        costs: Known costs of the individual: parameters, flops, latency.
        each: The fitness with each seed, where there are several.
    """

    fitness: Fitness
    updates: int = 0
    kind: Kind = "trained"
    why: str = ""
    seconds: float = 0.0
    costs: dict[str, float] = field(default_factory=dict)
    each: tuple[Fitness, ...] = ()


@dataclass
class Individual:
    """One individual, as far as its results are known.

    Args:
        number: Its number, from 0.
        point: Its point of the space.
        parent: The individual that it is a change of.
        steps: Its steps, in order.
        results: Their results that are known, in order.
    """

    number: int
    point: Point
    parent: int | None
    steps: list[SearchStep] = field(default_factory=list)
    results: list[StepResult] = field(default_factory=list)

    @property
    def updates(self) -> int:
        """The updates of its last known result."""
        return self.steps[len(self.results) - 1].updates if self.results else 0

    @property
    def fitness(self) -> Fitness | None:
        """Its last known fitness."""
        return self.results[-1].fitness if self.results else None

    @property
    def fit(self) -> bool:
        """Whether it has a fitness that is a number."""
        return self.fitness is not None and all(map(math.isfinite, self.fitness))


@dataclass(frozen=True)
class New:
    """A proposal: train a new individual; `updates` of None: a whole training."""

    point: Point
    parent: int | None = None
    updates: int | None = None


@dataclass(frozen=True)
class Longer:
    """A proposal: go on with an individual, up to a number of updates."""

    individual: int
    updates: int


Proposal = New | Longer


@dataclass(frozen=True)
class SearchView:
    """The facts that a strategy knows when it proposes a step.

    Args:
        full: The updates of a whole training.
        parallel: The number of steps that run at the same time.
        random: The generator of this step, a function of the seed and the step's number.
        individuals: All individuals, with the results that are known.
        told: The steps with known results, in order.
        goals: The number of goals of a fitness.
        closed: Whether the budget allows no new individual.
    """

    space: Space
    full: int
    parallel: int
    seed: int
    random: np.random.Generator
    individuals: Sequence[Individual]
    told: Sequence[SearchStep]
    steps: Sequence[SearchStep]
    goals: int = 1
    closed: bool = False

    def propose(
        self,
        draw: Callable[[np.random.Generator], Point] | None = None,
        *,
        parent: int | None = None,
        updates: int | None = None,
    ) -> New | None:
        """A point that can be built and was not proposed before; None where none was drawn, or none
        is allowed.

        Args:
            draw: The function that draws a point; None: that of the space.
            parent: The individual that the point is a change of.
            updates: The updates of its first step; None: a whole training.
        """
        if self.closed:
            return None
        seen = {compute_point_key(each.point) for each in self.individuals}
        why = None
        for _ in range(TRIES):
            point = (draw or self.space.draw)(self.random)
            why = self.space.problems(point)
            if why is None and compute_point_key(point) not in seen:
                return New(point, parent, updates)
        if why is not None:
            raise UsageError(f"space: of {TRIES} points that were drawn, none can be built: {why}")
        return None

    def score(self, individual: Individual) -> float:
        """One number for a fitness: itself; of several goals, minus the number of individuals that
        are better in one of them and worse in none.
        """
        assert individual.fitness is not None
        if len(individual.fitness) == 1:
            return individual.fitness[0]
        if not individual.fit:
            return -math.inf
        others = (each.fitness for each in self.individuals if each.fit)
        return -float(sum(dominates(other, individual.fitness) for other in others if other))


def dominates(one: Fitness, other: Fitness) -> bool:
    """Whether `one` is better in one goal, and worse in none."""
    pairs = list(zip(one, other, strict=True))
    return all(a >= b for a, b in pairs) and any(a > b for a, b in pairs)


@base_of("strategy")
class SearchStrategy(ABC):
    """Chooses what is trained next.

    A proposal is a function of the view alone: what a strategy keeps is a cache of it.
    """

    one_goal = False  # whether a fitness of several goals is refused
    pauses = False  # whether individuals are trained in several steps
    ends = False  # whether it comes to an end without a budget
    needs_dimensions = False  # whether the space must be independent settings

    @abstractmethod
    def propose(self, view: SearchView) -> Proposal | None:
        """The next step; None until another result is known."""

    def problems(self, space: Space, full: int) -> str | None:
        """Why a search cannot run, in a sentence; None where it can.

        Args:
            space: The space.
            full: The updates of a whole training.
        """
        return None

    def levels(self, told: Sequence[Individual]) -> Sequence[tuple[int, float]]:
        """(updates, the fitness that an individual had to exceed there) of each hurdle so far."""
        return ()
