"""Child-tuning (Xu et al., 2021): each update changes a part of the weights, the child network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.optim import Optimizer

from plmctl.core.batch import Batch
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.core.values import Share
from plmctl.models.base import Model
from plmctl.models.capabilities import list_layer_parts
from plmctl.objectives.base import Objective, Term
from plmctl.training.stabilisers.base import Beginning, KeptTensors, Stabiliser


@part_of("stabiliser")
class FreeChild(Stabiliser):
    """`g <- g M / p`, M ~ Bernoulli(p) anew in each update (Xu et al., 2021, arXiv:2109.05687,
    sec. 2.2: ChildTuning-F).

    M is drawn by the seed and the number of the update, the same in all processes. Moments of Adam
    go on where the gradient is 0, as in the released code.
    """

    def __init__(self, *, share: Share) -> None:
        super().__init__()
        self.share, self.seed = share, 0
        self.updates: Tensor
        self.register_buffer("updates", torch.zeros((), dtype=torch.int64))

    def begin(self, given: Beginning) -> None:
        self.seed = given.seed

    @torch.no_grad()
    def before_step(self, model: Model, optimizer: Optimizer, share: float) -> None:
        self.updates += 1
        words = np.random.SeedSequence([self.seed, int(self.updates)]).generate_state(1, np.uint64)
        drawn = torch.Generator().manual_seed(int(words[0]))
        for weight in model.parameters():
            if weight.grad is not None:
                kept = torch.empty(weight.shape).bernoulli_(self.share, generator=drawn)
                weight.grad.mul_(kept.to(weight.grad) / self.share)


@part_of("stabiliser")
class TaskChild(Stabiliser):
    """`g <- g M`, M = 1 for the share p of the weights with the largest Fisher information `mean of
    g^2` over the batches of the training rows. It is computed once (Xu et al., 2021,
    arXiv:2109.05687, sec. 2.3: ChildTuning-D).

    It masks weights of layers; others are all trained, as in the released code. Differs: it
    measures in evaluation mode.
    """

    of_one_task = True

    def __init__(self, *, share: Share) -> None:
        super().__init__()
        self.share = share
        self.masks = KeptTensors({})
        self.names: list[str] = []

    def begin(self, given: Beginning) -> None:
        model = given.model
        layers = [part for own in list_layer_parts(model.backbone)[1:] for part in own]
        inside = {id(weight) for part in layers for weight in part.parameters()}
        weights = {
            name: weight
            for name, weight in model.named_parameters()
            if (id(weight) in inside or (not layers and name.startswith("backbone.")))
            and weight.requires_grad
        }
        if not weights:
            allowed = "a model that trains weights of its layers, of which it chooses some"
            raise ConfigError("stabiliser", "child_task", allowed, fix="leave train.frozen out")
        self.names = list(weights)
        full = {name: torch.ones_like(w, dtype=torch.bool) for name, w in weights.items()}
        self.masks = KeptTensors(full)
        if not given.resumed and not any(weight.is_meta for weight in weights.values()):
            self._choose(measure_fisher(given, weights))

    def _choose(self, fisher: dict[str, Tensor]) -> None:
        """Set the masks: the largest of all weights together."""
        every = torch.cat([values.flatten() for values in fisher.values()])
        kept = max(1, round(self.share * every.numel()))
        least = every.kthvalue(every.numel() - kept + 1).values
        for name, values in fisher.items():
            self.masks.of(name).copy_(values >= least)

    @torch.no_grad()
    def before_step(self, model: Model, optimizer: Optimizer, share: float) -> None:
        named = dict(model.named_parameters())
        for name in self.names:
            if (gradient := named[name].grad) is not None:
                gradient.mul_(self.masks.of(name))


def measure_fisher(given: Beginning, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """{name: the mean over updates of the squared gradient of their mean loss}."""
    model, task = given.model, given.task
    found = {name: torch.zeros_like(weight) for name, weight in weights.items()}
    training, number = model.training, 0
    model.eval()
    for batches in given.passes():
        _refuse_cut(task, batches)
        counts = Counter[str]()
        for batch in batches:
            counts.update(task.counts(batch))
        whole = [torch.zeros_like(weight) for weight in weights.values()]
        for batch in batches:
            loss = _weigh(task(model, batch).terms, counts)
            gradients = torch.autograd.grad(loss, list(weights.values()), allow_unused=True)
            for values, gradient in zip(whole, gradients, strict=True):
                values += 0 if gradient is None else gradient
        for values, gradient in zip(found.values(), whole, strict=True):
            values += gradient.square()
        number += 1
    model.train(training)
    return {name: values / max(1, number) for name, values in found.items()}


def _weigh(terms: Mapping[str, Term], counts: Mapping[str, int]) -> Tensor:
    """[] the part of these terms in the mean loss of an update."""
    means = [term.weight * term.total / max(1, counts[name]) for name, term in terms.items()]
    return torch.stack(means).sum()


def _refuse_cut(task: Objective, batches: Sequence[Batch]) -> None:
    """ConfigError where a loss needs the rows of other micro-batches."""
    if len(batches) > 1 and task.facts.contrasts:
        allowed = "null with child_task: the loss compares all rows of an update"
        raise ConfigError("train.micro_batch_size", ..., allowed, fix="train.micro_batch_size=null")
