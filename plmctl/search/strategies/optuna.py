"""Strategies that Optuna has the samplers of.

Optuna keeps the state of its random numbers nowhere. So each proposal has its own sampler, whose
seed follows from that of the search and the number of the individual. A study in memory is rebuilt
from the list of individuals in the order in which they were proposed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from plmctl.core.errors import PlmctlError
from plmctl.core.extras import require_library
from plmctl.core.parts import part_of
from plmctl.core.values import Count
from plmctl.search.dimension import Dimension, Interval
from plmctl.search.space import Space
from plmctl.search.strategy import New, SearchStep, SearchStrategy, SearchView

MakeSampler = Callable[[Any, int, bool], Any]  # (optuna.samplers, seed, parallel) -> a sampler


def find_seed(seed: int, number: int) -> int:
    """The seed of the sampler of an individual: 32 bits of NumPy's SeedSequence."""
    return int(np.random.SeedSequence([seed, number]).generate_state(1)[0])


class OptunaSearch(SearchStrategy):
    """Points that a sampler of Optuna proposes.

    Args:
        name: The name of the strategy, for messages.
        make: The function that makes a sampler.
        module: A module that the sampler needs.
        one_goal: Whether the sampler takes one goal alone.
    """

    needs_dimensions = True

    def __init__(
        self, name: str, make: MakeSampler, *, module: str = "optuna", one_goal: bool = False
    ) -> None:
        self.name, self.make, self.one_goal = name, make, one_goal
        self.optuna = require_library("optuna", "optuna", f"strategy={name}")
        require_library(module, "optuna", f"strategy={name}")
        self.optuna.logging.set_verbosity(self.optuna.logging.ERROR)
        self._study: Any = None  # with the trials so far, and how many have their results
        self._trials: list[Any] = []
        self._told = 0
        self._kinds: dict[str, Any] = {}

    def problems(self, space: Space, full: int) -> str | None:
        """A layout of too many forms, which no sampler takes."""
        for key, each in space.dimensions.items():
            if not isinstance(each, Interval) and each.values() is None:
                return f"{key} has more values than a sampler takes; strategy=evolution takes them"
        return None

    def propose(self, view: SearchView) -> New | None:
        """The point that the sampler proposes."""
        if view.closed:
            return None
        if self._study is None or len(self._trials) > len(view.individuals):
            self._begin(view)
        for individual in view.individuals[len(self._trials) :]:
            step = individual.steps[0]
            point = self._ask(view, individual.number, step.told)
            if point != dict(step.point):
                raise PlmctlError(
                    f"individual {individual.number} was proposed as {dict(step.point)}, and"
                    f" this version of Optuna ({self.optuna.__version__}) proposes {point}"
                    "\n  fix: the version that began the search, or out=<another folder>"
                )
        return New(self._ask(view, len(view.individuals), len(view.told)))

    def _begin(self, view: SearchView) -> None:
        """Begin a study in memory."""
        self._trials, self._told = [], 0
        directions = ["minimize"] * view.goals
        self._study = self.optuna.create_study(directions=directions, study_name="search")
        self._kinds = {key: self._distribute(each) for key, each in view.space.dimensions.items()}

    def _ask(self, view: SearchView, number: int, told: int) -> dict[str, Any]:
        """The point of an individual, with the results of the first `told` steps known."""
        for step in view.steps[self._told : told]:
            self._tell(view, step)
        self._told = max(self._told, told)
        self._study.sampler = self.make(
            self.optuna.samplers, find_seed(view.seed, number), view.parallel > 1
        )
        trial = self._study.ask(self._kinds)
        if number < len(self._trials):
            self._trials[number] = trial
        else:
            self._trials.append(trial)
        return {
            key: self._read(view.space.dimensions[key], value)
            for key, value in trial.params.items()
        }

    def _tell(self, view: SearchView, step: SearchStep) -> None:
        fitness = view.individuals[step.individual].results[0].fitness
        self._study.tell(self._trials[step.individual], [-each for each in fitness])

    def _distribute(self, dimension: Dimension) -> Any:
        """The distribution of a setting."""
        kinds = self.optuna.distributions
        if not isinstance(dimension, Interval):
            return kinds.CategoricalDistribution(list(range(len(dimension.values() or ()))))
        kind = kinds.IntDistribution if dimension.whole else kinds.FloatDistribution
        return kind(dimension.low, dimension.high, log=dimension.log)

    def _read(self, dimension: Dimension, value: Any) -> Any:
        values = None if isinstance(dimension, Interval) else dimension.values()
        return value if values is None else values[value]


@part_of("strategy")
def tpe(startup: Count = 10, candidates: Count = 24, joint: bool = True) -> OptunaSearch:
    """Tree-structured Parzen estimators (Bergstra et al., 2011), from Optuna.

    Args:
        startup: Individuals at random before the first estimate.
        candidates: Candidates, the most promising of which is trained.
        joint: Whether settings are estimated together (multivariate).
    """

    def make(samplers: Any, seed: int, parallel: bool) -> Any:
        return samplers.TPESampler(
            n_startup_trials=startup,
            n_ei_candidates=candidates,
            multivariate=joint,
            group=False,
            constant_liar=parallel,
            seed=seed,
        )

    return OptunaSearch("tpe", make)


@part_of("strategy")
def cmaes(sigma: float | None = None, startup: Count = 1) -> OptunaSearch:
    """CMA-ES (Hansen and Ostermeier, 2001), from Optuna and `cmaes`; choices are drawn at random.

    Args:
        sigma: The first deviation, as a share of each interval; null: a sixth.
        startup: Individuals at random before the first generation.
    """

    def make(samplers: Any, seed: int, parallel: bool) -> Any:
        return samplers.CmaEsSampler(
            sigma0=sigma,
            n_startup_trials=startup,
            independent_sampler=samplers.RandomSampler(seed=seed),
            warn_independent_sampling=False,
            seed=seed,
        )

    return OptunaSearch("cmaes", make, module="cmaes", one_goal=True)


@part_of("strategy")
def gp(startup: Count = 10) -> OptunaSearch:
    """A Gaussian process and its expected improvement (Snoek et al., 2012), from Optuna.

    Args:
        startup: Individuals at random before the first estimate.
    """

    def make(samplers: Any, seed: int, parallel: bool) -> Any:
        return samplers.GPSampler(
            seed=seed,
            independent_sampler=samplers.RandomSampler(seed=seed),
            n_startup_trials=startup,
            deterministic_objective=False,
        )

    return OptunaSearch("gp", make, module="scipy")
