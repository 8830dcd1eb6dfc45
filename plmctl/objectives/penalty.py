"""The penalties that parts of a model put on their own weights, beside the loss of any
objective.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from plmctl.core.batch import Batch
from plmctl.models.base import Model
from plmctl.nn.restrained import Restrained
from plmctl.objectives.base import Objective, Output, Term


class Penalized(Objective):
    """`objective + sum_part penalty(part)`, the sum once an update, whatever micro-batches and
    processes it is split into.

    Its term counts rows: each micro-batch adds its share. The penalty is in the gradient, before it
    is clipped; decay that an optimizer keeps apart from the gradient, as AdamW does, is another
    rule.
    """

    def __init__(self, *, objective: Objective, parts: Sequence[Restrained]) -> None:
        super().__init__()
        # the model's: a list, so that they are not also this one's
        self.objective, self.parts = objective, list(parts)
        self.facts = replace(objective.facts, terms=objective.facts.terms | {"penalty"})

    def counts(self, batch: Batch) -> dict[str, int]:
        return {**self.objective.counts(batch), "penalty": len(batch.key)}

    def forward(self, model: Model, batch: Batch, state: Any = None) -> Output:
        out = self.objective(model, batch, state)
        penalty = torch.stack([part.penalty() for part in self.parts]).sum()
        return Output({**out.terms, "penalty": Term(len(batch.key) * penalty)}, out.logs, out.state)

    def after_step(self, model: Model, step: int) -> None:
        self.objective.after_step(model, step)


def penalize(model: Model, objective: Objective) -> Objective:
    """`objective`, with the penalties of the model's parts where some ask for one."""
    parts = [part for part in model.modules() if isinstance(part, Restrained) and part.strength]
    return Penalized(objective=objective, parts=parts) if parts else objective
