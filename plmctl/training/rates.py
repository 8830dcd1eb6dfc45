"""The learning rates of an update: those of the schedule of the run, or of the stage's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from plmctl.training.budget import Budget
from plmctl.training.optim.schedule import Schedule
from plmctl.training.progress import Progress
from plmctl.training.stages import Stage, share_of_stage


@dataclass(frozen=True)
class Rates:
    """What the optimizer's rates are multiplied by.

    Args:
        schedule: Of the run.
        stages: Each may have a schedule and a rate of its own.
        budget: The length of the run.
        groups: For each group of the optimizer, the name of one of its parameters.
    """

    schedule: Schedule
    stages: Sequence[Stage]
    budget: Budget
    groups: Sequence[str]

    def factors(self, progress: Progress, tokens: int) -> tuple[float, list[float]]:
        """The share of the run that is done with the next update, one of `tokens` tokens, and the
        factor of each group in it.
        """
        p, stage, step = progress, self.stages[progress.stage], progress.step + 1
        share = self.budget.share(steps=step, tokens=p.tokens + tokens, seconds=p.seconds)
        schedule, total = self.schedule, self.budget.total(step, share)
        if stage.schedule is not None:
            schedule, step = stage.schedule, step - p.before_stage
            total = step / max(share_of_stage(self.stages, p.stage, share), 1e-9)
            if self.budget.steps is not None:
                total = self.budget.steps * stage.share
        return share, [stage.rate * schedule.of(name)(step, total) for name in self.groups]
