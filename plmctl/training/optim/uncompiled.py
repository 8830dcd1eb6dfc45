"""torch's optimizers without its compiler.

torch decorates some of their methods so that its compiler can recognise them. When they are called,
it imports the whole compiler, which takes as long as torch itself. No step of ours is compiled:
here they stand without the decoration.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer


class Uncompiled(Optimizer):
    """An optimizer that is made, emptied, saved and loaded without the compiler; `move` is its
    own.
    """

    add_param_group = inspect.unwrap(Optimizer.add_param_group)
    zero_grad = inspect.unwrap(Optimizer.zero_grad)
    state_dict = inspect.unwrap(Optimizer.state_dict)
    load_state_dict = inspect.unwrap(Optimizer.load_state_dict)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Make one update."""
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self.move(p, p.grad, group)

    def move(self, p: Tensor, grad: Tensor, group: Mapping[str, Any]) -> None:
        """Make the step of one parameter by its gradient and the settings of its group."""
        raise NotImplementedError(type(self).__name__)


class UncompiledAdamW(Uncompiled, torch.optim.AdamW):
    """torch's AdamW, with its fused kernel."""

    step = torch.no_grad()(inspect.unwrap(torch.optim.AdamW.step))
