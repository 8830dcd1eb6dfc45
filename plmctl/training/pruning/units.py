"""Structured pruning: heads and neurons that matter little to the loss (Michel et al., 2019)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

from plmctl.core.parts import part_of
from plmctl.core.values import Count, DropoutRate, Rate
from plmctl.models.base import Model
from plmctl.models.units import HEADS, NEURONS, CellUnits, list_heads, list_neurons
from plmctl.training.pruning.base import Pruning, Scope, keep_largest, refuse_model
from plmctl.training.stabilisers.base import Beginning, KeptTensors

Find = Callable[[nn.Module], list[CellUnits]]


class Gated(Pruning):
    """Gates xi of units become 0, the least important ones first: `I = sum over examples |dL/dxi|`
    at xi = 1 (Michel et al., 2019, arXiv:1905.10650, sec. 4.1, eq. 2).

    The gate of a unit is a factor of the columns that it writes, so that `dL/dxi = sum over tokens
    a dL/da`. The importance is summed over the updates since the last choice. A gate that is 0 is a
    mask of the columns of the next map.

    Args:
        find: Finds the units of a model.
        kind: The name of the units, for messages.
        setting: The setting of a cell that counts them.
        normalise: Divide the importance by its L2 norm over the units of a layer.
        scope: The least important units of each layer, or of the model.
    """

    rewrites = True  # a compiled model would not call what measures

    def __init__(
        self,
        *,
        find: Find,
        kind: str,
        setting: str,
        sparsity: float,
        begin_at: float,
        end_at: float,
        every: int,
        normalise: bool,
        scope: Literal["layer", "model"],
    ) -> None:
        super().__init__(sparsity=sparsity, begin_at=begin_at, end_at=end_at, every=every)
        self.find, self.kind, self.setting, self.normalise = find, kind, setting, normalise
        self.scope: Scope = "matrix" if scope == "layer" else "model"
        self.units: dict[str, CellUnits] = {}
        self.importance = KeptTensors({})
        self.now: dict[str, Tensor] = {}  # importance in this update, in this process

    def begin(self, given: Beginning) -> None:
        names = {id(weight): name for name, weight in given.model.named_parameters()}
        found = self.find(given.model.backbone)
        trained = [own for own in found if own.output.weight.requires_grad]
        if not trained:
            raise refuse_model(f"trained {self.kind} in its layers")
        self.units = {names[id(own.output.weight)]: own for own in trained}
        weights = {name: own.output.weight for name, own in self.units.items()}
        columns = {n: w[:1].detach() for n, w in weights.items()}
        self.cover(weights, {n: torch.ones_like(c, dtype=torch.bool) for n, c in columns.items()})
        self.importance = KeptTensors(
            {n: columns[n].new_zeros(own.count) for n, own in self.units.items()}
        )

    @contextmanager
    def reading(self, model: Model) -> Iterator[None]:
        measure = self.unfinished and torch.is_grad_enabled()
        handles = [
            own.output.register_forward_pre_hook(partial(self._watch, name))
            for name, own in (self.units.items() if measure else ())
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _watch(self, name: str, output: nn.Module, given: Sequence[Tensor]) -> None:
        """Add the importance of units in the backward pass."""
        read = given[0]
        if read.requires_grad:
            read.register_hook(partial(self._add, name, read.detach()))

    @torch.no_grad()
    def _add(self, name: str, read: Tensor, gradient: Tensor) -> None:
        own = self.units[name]
        products = (read * gradient).float()
        per_row = products.flatten(1, -2).sum(1) if products.dim() > 2 else products
        gates = per_row.view(-1, own.count, own.width).sum(-1).abs().sum(0)
        gates = torch.nan_to_num(gates, nan=0.0, posinf=0.0, neginf=0.0)  # skipped updates
        self.now[name] = self.now[name] + gates if name in self.now else gates

    @torch.no_grad()
    def before_step(self, model: Model, optimizer: Optimizer, share: float) -> None:
        super().before_step(model, optimizer, share)
        for name in self.units if self.unfinished else ():
            total = self.importance.of(name)
            change = self.now.get(name, torch.zeros_like(total)).to(total)
            if dist.is_initialized():
                dist.all_reduce(change)
            total.add_(change)
        self.now.clear()

    def choose(self, weights: Mapping[str, Tensor], pruned: float) -> None:
        values = {}
        for name, own in self.units.items():
            value = self.importance.of(name).clone()
            if self.normalise:
                value /= value.norm().clamp(min=torch.finfo(value.dtype).tiny)
            there = self.masks.of(name).view(own.count, own.width).any(1)
            values[name] = torch.where(there, value, -torch.ones_like(value))
            self.importance.of(name).zero_()
        for name, mask in keep_largest(values, pruned, self.scope).items():
            self.masks.of(name).copy_(mask.repeat_interleave(self.units[name].width)[None])


@part_of("pruning")
def heads(
    *,
    sparsity: DropoutRate,
    begin_at: Rate,
    end_at: Rate,
    every: Count,
    normalise: bool,
    scope: Literal["layer", "model"],
) -> Pruning:
    """Heads of attention by importance."""
    return Gated(
        find=list_heads,
        kind="heads of attention",
        setting=HEADS,
        sparsity=sparsity,
        begin_at=begin_at,
        end_at=end_at,
        every=every,
        normalise=normalise,
        scope=scope,
    )


@part_of("pruning")
def neurons(
    *,
    sparsity: DropoutRate,
    begin_at: Rate,
    end_at: Rate,
    every: Count,
    normalise: bool,
    scope: Literal["layer", "model"],
) -> Pruning:
    """Inner columns of feed-forward cells by importance, the first-order term of the change of the
    loss without them (Molchanov et al., 2017, arXiv:1611.06440, eq. 7).
    """
    return Gated(
        find=list_neurons,
        kind="feed-forward neurons",
        setting=NEURONS,
        sparsity=sparsity,
        begin_at=begin_at,
        end_at=end_at,
        every=every,
        normalise=normalise,
        scope=scope,
    )
