"""A model's own costs in addition to any objective: layers of tokens that halt, penalties, losses
of its passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn
from torch.optim import Optimizer

from plmctl.core.batch import Batch
from plmctl.models.base import Model, Once
from plmctl.objectives.base import ModelCost, Objective, Output
from plmctl.objectives.own_losses import OwnLosses
from plmctl.objectives.penalty import Penalties
from plmctl.objectives.ponder import PonderCost
from plmctl.objectives.wrapper import Wrapper


def find_costs(model: Model) -> list[ModelCost]:
    """The costs that the parts of a model state."""
    backbone = model.backbone
    costs = (PonderCost.of(backbone), Penalties.of(model), OwnLosses.of(backbone))
    return [cost for cost in costs if cost is not None]


class Charged(Wrapper):
    """`objective`, with the costs of the model."""

    def __init__(self, *, objective: Objective, costs: Sequence[ModelCost]) -> None:
        super().__init__(objective)
        self.costs = list(costs)
        self.states = nn.ModuleList(state for cost in self.costs for state in cost.states())
        self.facts = objective.facts.charged(self.costs)

    def counts(self, batch: Batch) -> dict[str, int]:
        counts = super().counts(batch)
        for cost in self.costs:
            counts = {**counts, **cost.counts(batch)}
        return counts

    def forward(self, model: Model, batch: Batch, state: Any = None) -> Output:
        once: Any = Once(model)
        out = self.objective(once, batch, state)
        for cost in self.costs:
            out = cost.add(out, once, batch)
        return out

    def before_step(self, model: Model, optimizer: Optimizer, share: float) -> None:
        super().before_step(model, optimizer, share)
        for cost in self.costs:
            cost.before_step(share)

    def after_step(self, model: Model, step: int) -> None:
        super().after_step(model, step)
        for cost in self.costs:
            cost.after_step(step)


def charge(model: Model, objective: Objective) -> Objective:
    """`objective`, with the costs of the model where it has some."""
    costs = find_costs(model)
    return Charged(objective=objective, costs=costs) if costs else objective
