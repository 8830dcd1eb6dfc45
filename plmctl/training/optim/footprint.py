"""The memory of an optimizer's state, by a step of tensors without values."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from plmctl.training.optim.groups import Named, OptimizerFactory


def count_state(optimizer: OptimizerFactory, parameters: Named) -> int | None:
    """Bytes that an optimizer keeps for those of `parameters` that are trained; None where its step
    depends on values.
    """
    with FakeTensorMode(allow_non_fake_inputs=True):
        stand_ins = [
            (name, nn.Parameter(torch.empty(p.shape, dtype=p.dtype, device="cpu")))
            for name, p in parameters
            if p.requires_grad
        ]
        try:
            built = optimizer(parameters=stand_ins)
            for _, p in stand_ins:
                p.grad = torch.empty_like(p)
            built.step()
        except RuntimeError:  # torch has no result for a tensor without values
            return None
        values = [value for state in built.state.values() for value in state.values()]
        return sum(v.numel() * v.element_size() for v in values if isinstance(v, Tensor))
