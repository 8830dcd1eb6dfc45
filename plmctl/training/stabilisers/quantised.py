"""Quantisation-aware training: the model learns with rounded weights and inputs (Q8BERT)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Annotated, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.core.values import DropoutRate, Rate, Rule
from plmctl.models.base import Model
from plmctl.runtime.whole_numbers import TrainedRanges
from plmctl.training.stabilisers.base import UNFROZEN, Beginning, KeptTensors, Stabiliser
from plmctl.training.stabilisers.rounded import fake_round, find_scale

Bits = Annotated[int, Rule(lambda n: 2 <= n <= 8, "2 to 8")]


@part_of("stabiliser")
class Quantised(Stabiliser):
    """Weights of linear maps and embeddings, and inputs of linear maps, are rounded to `bits` bits
    in each pass: `s clamp(round(x / s), -127, 127)` for 8 (Zafrir et al., 2019, arXiv:1910.06188,
    sec. 3).

    `s = max|W| / 127` of a weight, anew in each pass; `s = r / 127` of an input, with `r <- decay r
    + (1 - decay) max|x|` until the share `freeze_at` of the run. Gradients are straight-through.
    The weights that are evaluated and saved are the rounded ones. The ranges r are saved with the
    run, as buffers. Softmax, norms, activations and biases stay as they are.

    Args:
        bits: Bits of a number.
        decay: The share of a range that stays in each pass.
        freeze_at: The share of the run after which ranges stay.
    """

    rewrites, averages, keeps_zeros = True, True, True

    def __init__(self, *, bits: Bits, decay: DropoutRate, freeze_at: Rate) -> None:
        super().__init__()
        self.bits, self.decay, self.freeze_at = bits, decay, freeze_at
        self.ranges, self.trained = KeptTensors({}), KeptTensors({})
        self.owners: dict[str, nn.Module] = {}  # by the name of their weight
        self.learns = True  # whether ranges still change
        self.reads = False  # whether a batch of training is read
        self.shown: Tensor  # whether the model holds the rounded weights
        self.register_buffer("shown", torch.zeros((), dtype=torch.bool))

    def begin(self, given: Beginning) -> None:
        if given.model.recomputes:
            allowed = "a model whose layers run once: a second run would read other weights"
            raise ConfigError("stabiliser", "quantised", allowed, fix="stabiliser=[]")
        self.owners = {
            f"{name}.weight": part
            for name, part in given.model.named_modules()
            if isinstance(part, nn.Linear | nn.Embedding) and part.weight.requires_grad
        }
        if not self.owners:
            allowed = "a model that trains linear maps or embeddings"
            raise ConfigError("stabiliser", "quantised", allowed, fix=UNFROZEN)
        weights: dict[str, Tensor] = {name: self._weight(name) for name in self.owners}
        linears = [name for name, own in self.owners.items() if isinstance(own, nn.Linear)]
        self.ranges = KeptTensors({name: weights[name].new_zeros(()) for name in linears})
        unique = {id(weight): name for name, weight in reversed(weights.items())}
        self.trained = KeptTensors({name: weights[name] for name in reversed(unique.values())})
        for name in linears:
            self.owners[name].register_forward_pre_hook(partial(self._round_input, name))

    def _weight(self, name: str) -> Tensor:
        weight = self.owners[name]._parameters["weight"]
        assert weight is not None
        return weight

    def round_weight(self, weight: Tensor) -> Tensor:
        """The weight as the model reads it."""
        return fake_round(weight, find_scale(weight.detach().abs().max(), self.bits), self.bits)

    def _round_input(self, name: str, module: nn.Module, given: Sequence[Tensor]) -> Any:
        x, own = given[0], self.ranges.of(name)
        if self.reads and self.learns:
            largest = x.detach().abs().max().to(own)
            # the first range is that of the first batch
            own.copy_(torch.where(own > 0, own.lerp(largest, 1 - self.decay), largest))
        scale = find_scale(own, self.bits).to(x.dtype)
        return (torch.where(own > 0, fake_round(x, scale, self.bits), x), *given[1:])

    def find_ranges(self, state: Mapping[str, Tensor]) -> TrainedRanges:
        def select(kind: str) -> dict[str, Tensor]:
            own = {name: each for name, each in state.items() if name.startswith(kind)}
            return {name.removeprefix(kind).replace("/", "."): own[name] for name in own}

        inputs = {name: float(own) for name, own in select("ranges.").items()}
        return TrainedRanges(self.bits, [*select("trained.")], inputs)

    @contextmanager
    def reading(self, model: Model) -> Iterator[None]:
        weights = {name: self._weight(name) for name in self.owners}
        rounded: dict[int, Any] = {}  # a tied weight is rounded once
        for name, weight in weights.items():
            if id(weight) not in rounded:
                rounded[id(weight)] = self.round_weight(weight)
            self.owners[name]._parameters["weight"] = rounded[id(weight)]
        self.reads = True
        try:
            yield
        finally:
            self.reads = False
            for name, weight in weights.items():
                self.owners[name]._parameters["weight"] = weight  # type: ignore[assignment]

    def before_step(self, model: Model, optimizer: Optimizer, share: float) -> None:
        self.learns = share < self.freeze_at

    @torch.no_grad()
    def after_step(self, model: Model, step: int) -> None:
        if dist.is_initialized() and self.learns:  # each process has read other rows
            names = [name for name in self.owners if isinstance(self.owners[name], nn.Linear)]
            every = torch.stack([self.ranges.of(name) for name in names])
            dist.all_reduce(every)
            for name, own in zip(names, every / dist.get_world_size(), strict=True):
                self.ranges.of(name).copy_(own)

    @torch.no_grad()
    def exchange(self, model: Model) -> None:
        self.shown.logical_not_()
        named = dict(model.named_parameters())
        for name in (name for name in self.owners if name in named):
            weight, own = named[name], self.trained.of(name)
            if self.shown:
                own.copy_(weight)
                weight.copy_(self.round_weight(weight))
            else:
                weight.copy_(own)
