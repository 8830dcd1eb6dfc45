"""Pruning of the residual width: columns of the stream that all layers read and write become 0."""

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
from plmctl.models.counted_norms import count_columns
from plmctl.training.pruning.base import Pruning, keep_largest, refuse_model
from plmctl.training.stabilisers.base import Beginning, KeptTensors

BACKBONE = "backbone."
KEPT, IMPORTANCE = "kept", "importance"


@part_of("pruning")
class ResidualWidth(Pruning):
    """A gate xi_j of each residual column becomes 0, the least important ones first (Molchanov et
    al., 2017, arXiv:1611.06440, eq. 7; Xia et al., 2022, arXiv:2204.00408, hidden dimensions).

    The gate is a factor of column j in what every norm of the backbone writes. `taylor`: `I_j = sum
    over rows |dL/dxi_j|` at xi = 1, `dL/dxi_j = sum over norms and tokens of a_j dL/da_j`, summed
    over the updates since the last choice. `magnitude`: `I_j^2 = sum of w^2` over the weights of
    matrices and tables that belong to the column. A pruned column is 0 in all tensors, and norms
    count the others alone, so that the model computes the same without it.

    Args:
        sparsity: The share of the residual columns that are 0 in the end; one stays in any case.
        importance: The rule of the importance.
        find_axes: Gives {tensor: how often the residual columns stand on each axis}.
    """

    rewrites = True  # a compiled model would not call what measures

    def __init__(
        self,
        *,
        sparsity: DropoutRate,
        begin_at: Rate,
        end_at: Rate,
        every: Count,
        importance: Literal["taylor", "magnitude"],
        find_axes: Callable[[], Mapping[str, tuple[int, ...]]],
    ) -> None:
        super().__init__(sparsity=sparsity, begin_at=begin_at, end_at=end_at, every=every)
        self.importance, self.find_axes = importance, find_axes
        self.axes: dict[str, tuple[int, ...]] = {}
        self.kept = KeptTensors({})
        self.norms: dict[str, nn.Module] = {}
        self.now: list[dict[int, Tensor]] = []  # one for each pass, {rows: a dL/da [rows, W]}

    def begin(self, given: Beginning) -> None:
        axes, weights = self.find_axes(), dict(given.model.named_parameters())
        if unknown := sorted(weights.keys() - axes.keys()):
            raise refuse_model(f"residual columns that are known; {unknown[0]} is of another part")
        self.axes = {name: axes[name] for name in weights if any(axes[name])}
        names = [name.rpartition(".")[0] for name in self.axes if axes[name] == (1,)]
        self.norms = count_columns(given.model, names)
        if not any(name.startswith(BACKBONE) for name in self.norms):
            raise refuse_model("norms of its residual columns")
        first = next(iter(self.norms))
        counted = self.norms[first].get_buffer("counted")
        covered = {name: weights[name] for name in self.axes}
        self.cover(covered, {name: self._spread(name, counted) for name in self.axes})
        zeros = torch.zeros_like(weights[f"{first}.weight"])
        self.kept = KeptTensors({KEPT: counted, IMPORTANCE: zeros})

    def figures(self) -> dict[str, float]:
        """The share of the residual columns that are 0."""
        return {"sparsity": 1 - float(self.kept.of(KEPT).double().mean())} if self.axes else {}

    @contextmanager
    def reading(self, model: Model) -> Iterator[None]:
        measure = self.importance == "taylor" and self.unfinished and torch.is_grad_enabled()
        own: dict[int, Tensor] = {}
        handles = [
            norm.register_forward_hook(partial(self._watch, own))
            for name, norm in self.norms.items()
            if measure and name.startswith(BACKBONE)
        ]
        if measure:
            self.now.append(own)
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _watch(
        self, own: dict[int, Tensor], norm: nn.Module, given: Sequence[Tensor], written: Tensor
    ) -> None:
        """Add what a norm has written, times its gradient, in the backward pass."""
        if written.requires_grad:
            written.register_hook(partial(self._add, own, written.detach()))

    @torch.no_grad()
    def _add(self, own: dict[int, Tensor], written: Tensor, gradient: Tensor) -> None:
        products = (written * gradient).float()
        rows = products.flatten(1, -2).sum(1) if products.dim() > 2 else products
        own[len(rows)] = own[len(rows)] + rows if len(rows) in own else rows

    @torch.no_grad()
    def before_step(self, model: Model, optimizer: Optimizer, share: float) -> None:
        super().before_step(model, optimizer, share)
        total = self.kept.of(IMPORTANCE)
        if self.unfinished and self.importance == "taylor":
            gates = [rows.abs().sum(0) for own in self.now for rows in own.values()]
            change = sum(gates, torch.zeros_like(total, dtype=torch.float))
            change = torch.nan_to_num(change, nan=0.0, posinf=0.0, neginf=0.0)  # skipped updates
            if dist.is_initialized():
                dist.all_reduce(change)
            total.add_(change.to(total))
        self.now.clear()

    def choose(self, weights: Mapping[str, Tensor], pruned: float) -> None:
        before, value = self.kept.of(KEPT), self.kept.of(IMPORTANCE)
        if self.importance == "magnitude":
            value.copy_(self._measure(weights))
        values = {KEPT: torch.where(before, value, -torch.ones_like(value))}
        kept = keep_largest(values, min(pruned, 1 - 1 / len(value)), "matrix")[KEPT] & before
        for name in self.names:
            self.masks.of(name).copy_(self._spread(name, kept))
        for norm in self.norms.values():
            norm.get_buffer("counted").copy_(kept)
        before.copy_(kept)
        value.zero_()

    def _measure(self, weights: Mapping[str, Tensor]) -> Tensor:
        """[W] the length of all weights of matrices and tables that belong to each column."""
        squares = torch.zeros_like(self.kept.of(IMPORTANCE))
        for name, weight in weights.items():
            for axis, times in enumerate(self.axes[name] if weight.dim() > 1 else ()):
                if times:
                    across = weight.detach().square().movedim(axis, 0).flatten(1).sum(1)
                    squares += across.view(times, -1).sum(0)
        return squares.sqrt()

    def _spread(self, name: str, kept: Tensor) -> Tensor:
        """A mask that fits a tensor, from the columns that are kept."""
        axes = self.axes[name]
        mask = torch.ones([1] * len(axes), dtype=torch.bool, device=kept.device)
        for axis, times in enumerate(axes):
            if times:
                shape = [-1 if other == axis else 1 for other in range(len(axes))]
                mask = mask & kept.repeat(times).view(shape)
        return mask
