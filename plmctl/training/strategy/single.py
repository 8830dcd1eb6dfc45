"""Training in one process with all rows and all tensors."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from plmctl.objectives.base import Objective
from plmctl.training import checkpoint
from plmctl.training.optim.groups import Named
from plmctl.training.optim.state import load_optimizer_tensors, optimizer_tensors
from plmctl.training.processes.world import NOTHING
from plmctl.training.strategy.base import M, Run, Strategy


class Single(Strategy):
    """Trains in one process."""

    parameters: Sequence[nn.Parameter] = ()

    def place(self, module: M) -> M:
        return module.to(self.world.device)

    def unite(self, model: nn.Module, objective: Objective) -> Run:
        return objective

    def passes(self, count: int) -> int:
        return count

    def gathered(self) -> AbstractContextManager[Any]:
        return nullcontext()

    def release(self) -> None:
        pass

    def train(self, parameters: Sequence[nn.Parameter]) -> None:
        self.parameters = list(parameters)

    def sum_counts(
        self, counts: Mapping[str, int], also: Mapping[str, int] = NOTHING
    ) -> dict[str, int]:
        return self.world.sum_counts(counts, also)

    def backward(self, loss: Tensor, *, last: bool) -> None:
        loss.backward()

    def finish_backward(self) -> None:
        pass

    def gradient_norm(self) -> Tensor:
        return nn.utils.get_total_norm([p.grad for p in self.parameters if p.grad is not None])

    def clip(self, norm: float, *, largest: float) -> None:
        if norm > largest:
            length = torch.tensor(norm, device=self.world.device)
            nn.utils.clip_grads_with_norm_(self.parameters, largest, length)

    def module_tensors(
        self, module: nn.Module, *, without: nn.Module | None = None
    ) -> dict[str, Tensor]:
        return checkpoint.tensors_of(module, without=without)

    def load_module(
        self,
        module: nn.Module,
        tensors: Mapping[str, Tensor],
        *,
        file: Path,
        without: nn.Module | None = None,
        elsewhere: Collection[str] = (),
    ) -> None:
        checkpoint.load_exactly(module, tensors, file=file, without=without, elsewhere=elsewhere)

    def optimizer_tensors(
        self, optimizer: Optimizer, parameters: Named, *, rows: Mapping[str, int]
    ) -> dict[str, Tensor]:
        return optimizer_tensors(optimizer, parameters, rows=rows)

    def load_optimizer(
        self,
        optimizer: Optimizer,
        parameters: Named,
        tensors: Mapping[str, Tensor],
        *,
        rows: Mapping[str, int],
    ) -> None:
        load_optimizer_tensors(optimizer, parameters, tensors, rows=rows)
