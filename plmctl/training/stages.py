"""The stages of training, and the interface of their data."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from plmctl.attention.patterns.base import Pattern
from plmctl.core.batch import Batch
from plmctl.core.errors import ConfigError, find_alike, nearest
from plmctl.objectives.phases import Phase
from plmctl.training.freezing import matches
from plmctl.training.optim.schedule import Schedule


class BatchSource(Protocol):
    """Endless updates: this rank's micro-batches of each. The state is the position after the last
    returned one.
    """

    def __next__(self) -> list[Batch]:
        """This rank's micro-batches of the next update."""

    def state_dict(self) -> dict[str, Any]:
        """The position after the last returned update."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved position."""


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A share of the budget with its own data, and what else is its own.

    Args:
        batches: Opens its data.
        trainable: The trained parts of the model, as in `freezing.apply_freezing`.
        frozen: The frozen parts.
        pattern: The pattern: which tokens see each other; None: as in the stage before.
        rate: Times the learning rates of the run.
        rates: {glob over parameters, or module: the factor of its rates in addition}; the last
            match counts.
        name: Its name in the log.
        schedule: The schedule of this stage alone, from its first update to its last; None: that of
            the run continues.
        losses: The terms of the objective that are trained, () for all; the others are only logged.
        refit: Modules, as in `freezing.find_refitted`, that follow from others when it begins.
        flops_per_token: Forward and backward, for MFU.
        lengths: The tokens of the longest row: read, and written; (0, 0): not known.
    """

    batches: Callable[[], BatchSource]
    share: float = 1.0
    trainable: Sequence[str] = ()
    frozen: Sequence[str] = ()
    pattern: Pattern | None = None
    rate: float = 1.0
    rates: Mapping[str, float] = field(default_factory=dict)
    name: str = ""
    schedule: Schedule | None = None
    losses: Sequence[str] = ()
    refit: Sequence[str] = ()
    flops_per_token: float = 0.0
    lengths: tuple[int, int] = (0, 0)

    def rate_of(self, name: str) -> float:
        """The factor of the learning rate of the parameter called `name`."""
        own = [factor for pattern, factor in self.rates.items() if matches(name, [pattern])]
        return self.rate * (own[-1] if own else 1.0)

    def kind_of(self, name: str) -> tuple[float, int]:
        """Equal for parameters whose learning rates go alike in this stage."""
        return self.rate_of(name), id(self.schedule.of(name)) if self.schedule else 0

    def divide(
        self, phases: Sequence[Phase], schedule: Schedule, terms: Collection[str]
    ) -> list[Stage]:
        """The phases of an objective, as stages that read the same data one after the other.

        Args:
            phases: The phases, whose shares are of this stage.
            schedule: The schedule of phases that have none.
        """
        return [
            replace(
                self,
                name=phase.name,
                share=self.share * phase.share,
                frozen=[*self.frozen, *phase.frozen],
                rate=self.rate * phase.rate,
                rates=phase.rates,
                schedule=phase.schedule or schedule,
                losses=sorted(set(terms) - phase.left_out),
            )
            for phase in phases
        ]


def check_shares(shares: Sequence[float]) -> None:
    """Raise ConfigError unless the shares of the stages add up to a run."""
    numbers = [float(share) for share in shares if isinstance(share, int | float)]
    if len(numbers) < len(shares) or min(numbers, default=0) <= 0 or abs(sum(numbers) - 1) > 1e-6:
        allowed = "the share of each stage must be above 0, and all add up to 1"
        raise ConfigError("train.stages", list(shares), allowed)


def check_losses(losses: Sequence[str], terms: Collection[str]) -> None:
    """Raise ConfigError for a loss of a stage that is none of the `terms` of the objective."""
    for loss in losses:
        if loss not in terms:
            meant = [*(each for each in losses if each in terms), *find_alike(loss, terms)]
            allowed = f"one of {', '.join(sorted(terms))}{nearest(loss, sorted(terms))}"
            fix = f"losses=[{','.join(dict.fromkeys(meant or sorted(terms)))}]"
            raise ConfigError("losses", list(losses), allowed, fix=fix)


def find_stage(stages: Sequence[Stage], done: float) -> int:
    """The index of the stage of an update that begins when the share `done` of the budget is
    used.
    """
    edge = 0.0
    for number, stage in enumerate(stages[:-1]):
        edge += stage.share
        if done < edge - 1e-9:
            return number
    return len(stages) - 1


def describe_empty_stages(stages: Sequence[Stage], steps: int | None) -> str:
    """A list of the stages that a run of so many updates leaves out, since their shares are too
    small; empty if none.
    """
    if steps is None:
        return ""
    empty, begin = [], 0.0
    for number, stage in enumerate(stages):
        first = math.ceil((begin - 1e-9) * steps)  # update from there on, if it is still this stage
        if first >= steps or find_stage(stages, first / steps) != number:
            empty.append(str(number + 1))
        begin += stage.share
    if not empty:
        return ""
    enough = math.ceil(1 / min(stage.share for stage in stages))
    word = "stage" if len(empty) == 1 else "stages"
    return (
        f"{word} {', '.join(empty)} of {len(stages)}: no update, the share is too small"
        f" (train.steps={enough} gives every stage one)"
    )


def share_of_stage(stages: Sequence[Stage], number: int, done: float) -> float:
    """The share of the stage `number` that is done when the share `done` of the budget is used."""
    begin = sum(stage.share for stage in stages[:number])
    return min(1.0, max(0.0, (done - begin) / stages[number].share))
