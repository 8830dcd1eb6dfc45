"""Weights are drawn to the pretrained ones, by the loss or by weight decay."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.optim import Optimizer

from plmctl.core.batch import Batch
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.models.base import Model
from plmctl.objectives.base import Objective, Output, Term
from plmctl.training.stabilisers.base import (
    UNFROZEN,
    Beginning,
    KeptTensors,
    Stabiliser,
    merge_terms,
)

TERM = "l2_sp"


class NearStart(Stabiliser):
    """Keeps the pretrained weights. `group`: its name in the config."""

    stays_near = True
    group: str

    def __init__(self) -> None:
        super().__init__()
        self.start = KeptTensors({})
        self.names: list[str] = []
        self.weights: Mapping[str, Tensor] = {}  # without the weights that mixout inserts

    def begin(self, given: Beginning) -> None:
        named = dict(given.model.named_parameters())
        self.names = [n for n, w in named.items() if w.requires_grad and n in given.pretrained]
        if not self.names:
            allowed = "a model that trains weights of the checkpoint"
            raise ConfigError("stabiliser", self.group, allowed, fix=UNFROZEN)
        self.start = KeptTensors({name: named[name] for name in self.names})
        self.weights = named

    def pairs(self) -> dict[str, tuple[Tensor, Tensor]]:
        """{name: (a weight, its start)} of the trained weights."""
        return {
            name: (self.weights[name], self.start.of(name))
            for name in self.names
            if self.weights[name].requires_grad
        }


@part_of("stabiliser")
class StartPenalty(NearStart):
    """L2-SP: `alpha / 2 sum (w - w0)^2 + beta / 2 sum v^2`, in the loss; w are pretrained weights,
    v new ones (Li et al., 2018, arXiv:1802.01483, eq. 3).
    """

    terms, group = frozenset({TERM}), "start_penalty"

    def __init__(self, *, alpha: float, beta: float) -> None:
        super().__init__()
        for name, value in (("alpha", alpha), ("beta", beta)):
            if not value >= 0:
                raise ConfigError(name, value, "0 or more", fix=f"{name}=0.01")
        self.alpha, self.beta = alpha, beta

    def penalty(self) -> Tensor:
        """[] the penalty of the weights."""
        near = self.pairs()
        parts = [self.alpha / 2 * (w - w0).square().sum() for w, w0 in near.values()]
        parts += [
            self.beta / 2 * weight.square().sum()
            for name, weight in self.weights.items()
            if weight.requires_grad and name not in near
        ]
        return torch.stack(parts).sum()

    def counts(self, task: Objective, batch: Batch) -> dict[str, int]:
        return {TERM: len(batch.key)}  # the rows of all micro-batches and processes count once

    def add(self, out: Output, again: Callable[[], Output], batch: Batch) -> Output:
        return merge_terms(out, **{TERM: Term(len(batch.key) * self.penalty())})


@part_of("stabiliser")
class StartDecay(NearStart):
    """Weight decay to the pretrained weights: `w <- w - lr decay (w - w0)` before the update
    (Wiese et al., 2017; Lee et al., 2020, arXiv:1909.11299, sec. 2: wdec(w0)).

    It is added to the decay of the optimizer, which is towards 0: `optim.weight_decay=0` leaves
    this one alone.
    """

    group = "start_decay"

    def __init__(self, *, decay: float) -> None:
        super().__init__()
        if not decay >= 0:
            raise ConfigError("decay", decay, "0 or more", fix="decay=0.01")
        self.decay = decay

    @torch.no_grad()
    def before_step(self, model: Model, optimizer: Optimizer, share: float) -> None:
        rates = {
            id(weight): group["lr"]
            for group in optimizer.param_groups
            for weight in group["params"]
        }
        for weight, start in self.pairs().values():
            weight.add_(weight - start, alpha=-rates[id(weight)] * self.decay)
