"""R-Drop (Liang et al., 2021): two passes with other dropout, which must predict the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from plmctl.core.batch import Batch
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.models.base import Model
from plmctl.objectives.base import Objective, Output, Term
from plmctl.training.stabilisers.base import Beginning, Stabiliser

TERM = "r_drop"


@part_of("stabiliser")
class TwoPasses(Stabiliser):
    """`(L1 + L2) / 2 + alpha (KL(P1 || P2) + KL(P2 || P1)) / 2`, P1 and P2 the predictions of two
    passes with other dropout (Liang et al., 2021, arXiv:2106.14448, eq. 2 to 4).

    Of numbers, `(p1 - p2)^2` stands for the divergence. Differs: the mean of both losses, as in the
    code that is released, where the paper has their sum.
    """

    terms, of_one_task, needs_dropout = frozenset({TERM}), True, True

    def __init__(self, *, alpha: float) -> None:
        super().__init__()
        if not alpha >= 0:
            raise ConfigError("alpha", alpha, "0 or more", fix="alpha=1.0")
        self.alpha = alpha
        self.task: list[Any] = []  # not a part of it
        self.model: list[Model] = []  # nor this
        self.seen: list[Mapping[str, Tensor]] = []

    def begin(self, given: Beginning) -> None:
        task: Any = given.task
        if not getattr(task, "has_classes", False):
            allowed = "a task with labels: this one writes text"
            raise ConfigError("stabiliser", "r_drop", allowed, fix="stabiliser=[]")
        task.check_compared()
        self.task, self.model = [task], [given.model]

    @contextmanager
    def reading(self, model: Model) -> Iterator[None]:
        task, self.seen = self.task[0], []
        predict = task.logits

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
            self.seen = []

    def counts(self, task: Objective, batch: Batch) -> dict[str, int]:
        own = self.task[0]
        return {TERM: own.counts(batch)[own.label_name]}

    def add(self, out: Output, again: Callable[[], Output], batch: Batch) -> Output:
        if not self.seen:
            allowed = (
                "a task whose predictions are asked of the model: this objective asks for none"
            )
            raise ConfigError("stabiliser", "r_drop", allowed, fix="distill=none")
        first = self.seen[-1]
        other = again()
        total = self.compare(first, self.seen[-1], batch)
        terms = {  # what the objective alone says in both passes
            name: Term((term.total + other.terms[name].total) / 2, term.weight)
            if name in other.terms
            else term
            for name, term in out.terms.items()
        }
        return Output({**terms, TERM: Term(total, self.alpha)}, out.logs, out.state)

    def compare(
        self, first: Mapping[str, Tensor], second: Mapping[str, Tensor], batch: Batch
    ) -> Tensor:
        """[] the sum over labels of how far both predictions are from each other."""
        task = self.task[0]
        ours, others = (task.flatten_logits(logits, batch) for logits in (first, second))
        sums = []
        for name, (own, labelled) in ours.items():
            p, q = own[labelled].float(), others[name][0][labelled].float()  # [p, K]
            if not task.chooses:
                sums.append((p - q).square().sum())
                continue
            log_p, log_q = F.log_softmax(p, -1), F.log_softmax(q, -1)
            # KL(P || Q) + KL(Q || P); what is impossible in both is 0
            apart = (log_p.exp() - log_q.exp()) * (log_p - log_q)
            sums.append(torch.where(apart.isfinite(), apart, 0).sum() / 2)
        return torch.stack(sums).sum()
