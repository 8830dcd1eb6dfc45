"""Averages of the weights, which are evaluated and saved instead of the last ones."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.optim import Optimizer

from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.core.values import Count, Rate
from plmctl.models.base import Model
from plmctl.training.stabilisers.base import Beginning, KeptTensors, Stabiliser


class Averaged(Stabiliser):
    """Keeps an average of each parameter that is trained, and exchanges it with the parameter."""

    averages, whole_weights = True, False

    def __init__(self) -> None:
        super().__init__()
        self.average = KeptTensors({})
        self.names: list[str] = []
        self.taken: Tensor  # how many weights are in the average
        self.register_buffer("taken", torch.zeros((), dtype=torch.int64))

    def begin(self, given: Beginning) -> None:
        named = {name: w for name, w in given.model.named_parameters() if w.requires_grad}
        self.names, self.average = list(named), KeptTensors(named)

    @torch.no_grad()
    def take(self, model: Model, weight: float) -> None:
        """`a <- a + weight (theta - a)`; the first weights are the average."""
        named = dict(model.named_parameters())
        for name in self.names:
            own = self.average.of(name)
            own.lerp_(named[name], weight) if self.taken else own.copy_(named[name])
        self.taken += 1

    @torch.no_grad()
    def exchange(self, model: Model) -> None:
        if not self.taken:
            return
        named = dict(model.named_parameters())
        for name in self.names:
            trained = named[name].clone()
            named[name].copy_(self.average.of(name))
            self.average.of(name).copy_(trained)


@part_of("stabiliser")
class MovingAverage(Averaged):
    """`a <- d a + (1 - d) theta` after each update; the first time `a = theta`.

    With `warmup`, `d = min(decay, (1 + n) / (10 + n))` after n updates, for short runs.
    """

    def __init__(self, *, decay: Rate, warmup: bool) -> None:
        super().__init__()
        self.decay, self.warmup = decay, warmup

    def after_step(self, model: Model, step: int) -> None:
        number = int(self.taken)
        decay = min(self.decay, (1 + number) / (10 + number)) if self.warmup else self.decay
        self.take(model, 1 - decay)


@part_of("stabiliser")
class StochasticAverage(Averaged):
    """SWA: the mean of the weights after every `every` updates of the last part of a run (Izmailov
    et al., 2018, arXiv:1803.05407, algorithm 1).

    Before it, the last weights are evaluated. The rate is that of the schedule:
    `schedule=constant` is as published.

    Args:
        begin_at: The share of the run after which weights are taken.
        every: Updates.
    """

    def __init__(self, *, begin_at: float, every: Count) -> None:
        super().__init__()
        if not 0 <= begin_at < 1:
            fix = "begin_at=0.75"
            raise ConfigError("begin_at", begin_at, "a share of the run, 0 up to 1", fix=fix)
        self.begin_at, self.every = begin_at, every
        self.share = 0.0
        self.since: Tensor  # updates since then
        self.register_buffer("since", torch.zeros((), dtype=torch.int64))

    def before_step(self, model: Model, optimizer: Optimizer, share: float) -> None:
        self.share = share

    def after_step(self, model: Model, step: int) -> None:
        if self.share <= self.begin_at:
            return
        if int(self.since) % self.every == 0:
            self.take(model, 1 / (int(self.taken) + 1))
        self.since += 1
