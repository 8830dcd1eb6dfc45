"""SMART's proximal point (Jiang et al., 2020): predictions stay near those of the mean weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.optim import Optimizer

from plmctl.core.batch import Batch
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.core.values import Amount, Rate
from plmctl.distill.self_ensemble import copy_as_buffers, find_tensors
from plmctl.models.base import Model
from plmctl.objectives.base import Output, Term
from plmctl.training.randomness import keep_random_state, random_state, restore_random_state
from plmctl.training.stabilisers.base import Beginning, merge_terms
from plmctl.training.stabilisers.compared import Compared

TERM = "proximal"


@part_of("stabiliser")
class ProximalPoint(Compared):
    """`mu / n sum D`, D = KL(P || Q) + KL(Q || P) of P with the weights w, which learns, and Q with
    their mean v; `(p - q)^2` for numbers. `v <- b v + (1 - b) w` after each update, at first v = w.

    (Momentum Bregman proximal point: Jiang et al., 2020, arXiv:1911.03437, sec. 3.2 and algorithm
    1, with one update for each proximal problem, S = 1.) `b` is `early` in the first `early_share`
    of a run, then `late`, as of a mean teacher (Tarvainen and Valpola, 2017, arXiv:1703.01780).
    With `regulariser=smart` it is SMART. Differs: both passes drop the same values, so that D is 0
    where w = v.

    Args:
        mu: weight of the term.
        early_share: The early share of the run.
    """

    terms, group = frozenset({TERM}), TERM

    def __init__(self, *, mu: Amount, early: Rate, late: Rate, early_share: Rate) -> None:
        super().__init__()
        self.mu, self.early, self.late, self.early_share = mu, early, late, early_share
        self.share = 0.0
        self.names: list[str] = []
        # predictions for the newest batch
        self.told: tuple[Batch, Mapping[str, Tensor]] | None = None

    def begin(self, given: Beginning) -> None:
        super().begin(given)
        if given.model.kept is not None:
            allowed = "none with train.frozen_outputs: the mean weights read each batch themselves"
            fix = "train.frozen_outputs=batch"
            raise ConfigError("stabiliser", self.group, allowed, fix=fix)
        self.mean = copy_as_buffers(given.model)
        self.names = [name for name, _ in given.model.named_parameters()]

    @contextmanager
    def reading(self, model: Model) -> Iterator[None]:
        self.start = random_state(self._device())
        with super().reading(model):
            yield

    def add(self, out: Output, again: Callable[[], Output], batch: Batch) -> Output:
        total = self.compare(self.passes()[0], self._ask(batch), batch)
        return merge_terms(out, **{TERM: Term(total, self.mu)})

    def before_step(self, model: Model, optimizer: Optimizer, share: float) -> None:
        self.share, self.told = share, None

    @torch.no_grad()
    def after_step(self, model: Model, step: int) -> None:
        decay = self.early if self.share <= self.early_share else self.late
        own = find_tensors(model, self.names)
        for name, mean in find_tensors(self.mean, self.names).items():
            mean.lerp_(own[name], 1 - decay)

    @torch.no_grad()
    def _ask(self, batch: Batch) -> Mapping[str, Tensor]:
        """The predictions of the mean weights, once for a micro-batch, however often it is read."""
        if self.told is None or self.told[0] is not batch:
            task, own = self.task[0], self.model[0]
            for mean, part in zip(self.mean.modules(), own.modules(), strict=True):
                mean.training = part.training  # frozen layers drop nothing
            with keep_random_state(self._device()):
                restore_random_state(self.start, self._device())
                # called on the class: no other observer takes it for a pass of the model
                self.told = batch, type(task).logits(task, self.mean, batch)
        return self.told[1]

    def _device(self) -> torch.device:
        return next(iter(self.model[0].parameters())).device
