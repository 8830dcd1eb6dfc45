"""The common base of R-Drop and SMART's proximal point: it stores the predictions of passes and
compares them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from plmctl.core.batch import Batch
from plmctl.core.errors import ConfigError
from plmctl.heads.base import widen
from plmctl.models.base import Model
from plmctl.objectives.base import Objective
from plmctl.training.stabilisers.base import Beginning, Stabiliser


class Compared(Stabiliser):
    """Sees what the model predicts while the objective reads a batch. `group`: its name in the
    config, and that of its term.
    """

    of_one_task = True
    group: str

    def __init__(self) -> None:
        super().__init__()
        self.task: list[Any] = []  # not a part of it
        self.model: list[Model] = []  # nor this
        self.seen: list[Mapping[str, Tensor]] = []  # the predictions of each pass

    def begin(self, given: Beginning) -> None:
        task: Any = given.task
        facts: Any = getattr(task, "facts", None)
        if not getattr(facts, "has_classes", False):
            allowed = "a task with labels: this one writes text"
            raise ConfigError("stabiliser", self.group, allowed, fix="stabiliser=[]")
        if facts.incomparable:
            raise facts.incomparable
        self.task, self.model = [task], [given.model]

    @contextmanager
    def reading(self, model: Model) -> Iterator[None]:
        task, self.seen = self.task[0], []
        predict, before = task.logits, vars(task).get("logits")  # logits of another observer

        def watch(model: Model, batch: Batch) -> dict[str, Tensor]:
            logits: dict[str, Tensor] = predict(model, batch)
            if model.backbone is self.model[0].backbone:  # no teacher
                self.seen.append(logits)
            return logits

        task.logits = watch
        try:
            yield
        finally:
            del task.logits
            if before is not None:
                task.logits = before
            self.seen = []

    def counts(self, task: Objective, batch: Batch) -> dict[str, int]:
        own = self.task[0]
        return {self.group: own.counts(batch)[own.facts.label_name]}

    def passes(self) -> list[Mapping[str, Tensor]]:
        """The predictions of each pass so far; ConfigError if none were recorded."""
        if not self.seen:
            allowed = "a task with predictions of the model: this objective has none"
            raise ConfigError("stabiliser", self.group, allowed, fix="distill=none")
        return self.seen

    def compare(
        self, first: Mapping[str, Tensor], second: Mapping[str, Tensor], batch: Batch
    ) -> Tensor:
        """[] the sum over labels of `KL(P || Q) + KL(Q || P)`, or of `(p - q)^2` of numbers."""
        task = self.task[0]
        ours, others = (task.flatten_logits(logits, batch) for logits in (first, second))
        sums = []
        for name, (own, labelled) in ours.items():
            p, q = widen(own[labelled]), widen(others[name][0][labelled])  # [p, K]
            if not task.facts.chooses:
                sums.append((p - q).square().sum())
                continue
            log_p, log_q = F.log_softmax(p, -1), F.log_softmax(q, -1)
            # classes that are impossible in both count 0
            apart = (log_p.exp() - log_q.exp()) * (log_p - log_q)
            sums.append(torch.where(apart.isfinite(), apart, 0).sum())
        return torch.stack(sums).sum()
