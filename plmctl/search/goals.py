"""Goals of a search, the costs that are known before a training, and limits on these."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from plmctl.core.errors import ConfigError, find_meant, nearest
from plmctl.search.strategy import Fitness

COSTS = ("parameters", "macs", "latency")  # goals that no training measures; lower is better
SPEED = "tokens_per_second"  # in the last line of a log of pretraining; higher is better


@dataclass(frozen=True)
class Goal:
    """A number that a search makes as good as it can.

    Args:
        name: A metric that each run reports on its held-out data, `SPEED`, or one of `COSTS`.
        lower: Whether lower is better.
    """

    name: str
    lower: bool

    @property
    def is_cost(self) -> bool:
        """Whether it is known before a training."""
        return self.name in COSTS

    def to_fitness(self, value: float) -> float:
        """The value as a fitness, of which larger is better; -inf where it is no finite number."""
        return (-value if self.lower else value) if math.isfinite(value) else -math.inf

    def to_value(self, fitness: float) -> float:
        """The value of a fitness."""
        return -fitness if self.lower else fitness


def choose_goals(
    names: Sequence[str], better: Sequence[str], known: Mapping[str, bool], first: str
) -> tuple[Goal, ...]:
    """The goals of a search.

    Args:
        names: Names that the user gives; none: `first`.
        better: The side of each of them: auto, lower or higher; none: auto.
        known: {metric of these runs: whether lower is better}.
        first: The usual metric.

    Raises:
        ConfigError: No run reports a metric of that name.
    """
    names = names or (first,)
    if better and len(better) != len(names):
        allowed = f"one of auto, lower, higher for each of {', '.join(names)}"
        fix = f"better=[{','.join(['auto'] * len(names))}]"
        raise ConfigError("better", list(better), allowed, fix=fix)
    every = {**known, **dict.fromkeys(COSTS, True), SPEED: False}
    goals: list[Goal] = []
    for name, side in zip(names, better or ["auto"] * len(names), strict=True):
        plain = name.removeprefix("valid/")
        if plain not in every:
            allowed = f"no run reports it{nearest(plain, every)}; there are {', '.join(every)}"
            fix = f"fitness=[{find_meant(plain, every) or first}]"
            raise ConfigError("fitness", name, allowed, fix=fix)
        goals.append(Goal(plain, every[plain] if side == "auto" else side == "lower"))
    return tuple(goals)


def read_fitness(
    goals: Sequence[Goal], scores: Mapping[str, float], costs: Mapping[str, float]
) -> Fitness:
    """The fitness of an individual; -inf for a goal that was not measured."""
    measured = (costs if goal.is_cost else scores for goal in goals)
    return tuple(
        goal.to_fitness(source.get(goal.name, math.nan))
        for goal, source in zip(goals, measured, strict=True)
    )


def find_excess(limits: Mapping[str, float], costs: Mapping[str, float]) -> str:
    """The first cost above its limit, in words; empty where none is."""
    for name, limit in limits.items():
        if costs[name] > limit:
            return f"constraints.{name}: {costs[name]:,.6g} is above {limit:,.6g}"
    return ""
