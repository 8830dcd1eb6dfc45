"""The learning rates of an update: those of the schedule of the run, or of the stage's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from plmctl.training.budget import Budget
from plmctl.training.optim.schedule import Schedule
from plmctl.training.progress import Progress
from plmctl.training.stages import Stage, share_of_stage


@dataclass(frozen=True)
class Rates:
    """The factors of the optimizer's rates.

    Args:
        stages: Each may have a schedule and a rate of its own.
        groups: The name of one parameter of each group of the optimizer.
    """

    schedule: Schedule
    stages: Sequence[Stage]
    budget: Budget
    groups: Sequence[str]

    def factors(self, progress: Progress, counts: Mapping[str, int]) -> tuple[float, list[float]]:
        """The share of the run that is done with the next update, which reads `counts`, and the
        factor of each group in it.
        """
        p = progress
        share = self.budget.done(p.after(counts))
        schedule, step, total = self._now(p, p.step + 1, share)
        factors = self._factors[progress.stage]
        return share, [
            factor * schedule.of(name)(step, total)
            for factor, name in zip(factors, self.groups, strict=True)
        ]

    @cached_property
    def _factors(self) -> list[list[float]]:
        """For each stage, the factor of each group besides its schedule."""
        return [[stage.rate_of(name) for name in self.groups] for stage in self.stages]

    def describe_shortening(self, progress: Progress) -> str | None:
        """One line if the warm-up of this stage is shortened, "" if it is not; None: the length of
        the run is not known so far, and warm-up not over.
        """
        share = self.budget.done(progress)
        schedule, step, total = self._now(progress, progress.step, share)
        known = self.budget.steps is not None or (step and schedule.is_warm(step, total))
        return schedule.describe_shortening(total) if known else None

    def _now(self, p: Progress, step: int, share: float) -> tuple[Schedule, int, float]:
        """The schedule at update `step`, with the number of the update in it, and its length."""
        stage = self.stages[p.stage]
        if stage.schedule is None:
            return self.schedule, step, self.budget.total(step, share)
        step -= p.before_stage
        if self.budget.steps is not None:
            return stage.schedule, step, self.budget.steps * stage.share
        done = share_of_stage(self.stages, p.stage, share)
        return stage.schedule, step, step / max(done, 1e-9)
