"""An objective around another one."""

from __future__ import annotations

import numpy as np
from torch import nn
from torch.optim import Optimizer

from plmctl.core.batch import Batch, Rows
from plmctl.models.base import Model
from plmctl.objectives.base import Objective, Verdicts


class Wrapper(Objective):
    """Passes everything but `forward` on to the wrapped objective.

    Args:
        objective: The wrapped objective.
    """

    def __init__(self, objective: Objective) -> None:
        super().__init__()
        self.objective = objective

    @property
    def unfinished(self) -> bool:
        return self.objective.unfinished

    def figures(self) -> dict[str, float]:
        return self.objective.figures()

    def own_rates(self) -> dict[nn.Parameter, float]:
        return self.objective.own_rates()

    def labels(self, rows: Rows) -> dict[str, np.ndarray]:
        return self.objective.labels(rows)

    def counts(self, batch: Batch) -> dict[str, int]:
        return self.objective.counts(batch)

    def judge_tokens(self, model: Model, batch: Batch) -> Verdicts | None:
        return self.objective.judge_tokens(model, batch)

    def before_step(self, model: Model, optimizer: Optimizer, share: float) -> None:
        self.objective.before_step(model, optimizer, share)

    def exchange(self, model: Model) -> None:
        self.objective.exchange(model)

    def after_step(self, model: Model, step: int) -> None:
        self.objective.after_step(model, step)
