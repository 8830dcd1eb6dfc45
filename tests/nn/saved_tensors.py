"""What a forward pass keeps until its backward pass."""

from __future__ import annotations

import gc

from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils import _pytree as tree
from torch.utils._python_dispatch import TorchDispatchMode

from plmctl.nn.env import Env
from plmctl.nn.stack import Stack
from tests.nn.stacks import run_stack


class _Births(TorchDispatchMode):
    """Every storage that an operator makes, held weakly, and how many bytes it has."""

    def __init__(self, *given: Tensor) -> None:
        super().__init__()
        self.given = {each.untyped_storage()._cdata for each in given}
        self.made: dict[int, tuple[StorageWeakRef, int]] = {}

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        result = operator(*args, **(kwargs or {}))
        for tensor in tree.tree_leaves(result):
            if isinstance(tensor, Tensor):
                storage = tensor.untyped_storage()
                if storage._cdata not in self.given:  # a view of a weight is nothing new
                    reference = StorageWeakRef(storage)
                    self.made[reference.cdata] = (reference, storage.nbytes())
        return result

    def alive(self) -> int:
        gc.collect()
        return sum(size for reference, size in self.made.values() if not reference.expired())


def saved_numbers(stack: Stack, x: Tensor, env: Env) -> int:
    """How many numbers of the type of `x` are alive after the forward pass, whoever holds them,
    beside its input, its result, the weights and their gradients.
    """
    with _Births(x, *stack.parameters()) as births:
        last, _ = run_stack(stack, x, env)
    kept = births.alive() // x.element_size() - last.numel()
    last.sum().backward()
    return kept
