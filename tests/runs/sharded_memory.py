"""One process of test_memory: `python -m tests.runs.sharded_memory FILE WORDS...` runs plmctl with
these words. It writes the bytes of the last update to `FILE-RANK.json`: those of shares, and those
of tensors that are whole for a time.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.fsdp._fully_shard._fsdp_param import FSDPParam
from torch.distributed.fsdp._fully_shard._fsdp_param_group import FSDPParamGroup

from plmctl.cli import app
from plmctl.core.shares import local_of
from plmctl.training.update import Update

found: dict[str, int] = {"gathered": 0}
whole: dict[int, Any] = {}  # weights that were gathered once


def count_whole() -> None:
    """Take note of the largest size of all gathered weights with their gradients."""
    sizes: dict[int, int] = {}
    for weight in whole.values():
        grad = weight.unsharded_accumulated_grad
        own = weight._unsharded_param.grad if hasattr(weight, "_unsharded_param") else None
        tensors = [*weight.all_gather_outputs, grad, own]
        for tensor in (each for each in tensors if each is not None):
            storage = local_of(tensor).untyped_storage()
            sizes[storage._cdata] = storage.nbytes()
    found["gathered"] = max(found["gathered"], sum(sizes.values()))


def watch_engine() -> None:
    """Count whenever the engine gathers weights, gives them back, or divides gradients."""
    allocate, free = FSDPParam.alloc_all_gather_outputs, FSDPParam.free_unsharded_param
    divide = FSDPParamGroup.post_backward

    def after(self: Any) -> None:
        allocate(self)
        whole[id(self)] = self
        count_whole()

    def before(self: Any) -> None:
        count_whole()
        free(self)

    def between(self: Any, *given: Any) -> None:
        count_whole()
        divide(self, *given)

    FSDPParam.alloc_all_gather_outputs = after
    FSDPParam.free_unsharded_param = before
    FSDPParamGroup.post_backward = between


def watch_update(file: str) -> None:
    """Count shares and activations of an update, and write all at its end."""
    gradient, end = Update.gradient, Update.end

    def watch(self: Update, *given: Any, **named: Any) -> Any:
        found["gathered"] = 0  # in the first update, the engine does not know the order of cells
        weights = {*self.model.parameters(), *self.objective.parameters()}
        buffers = [*self.model.buffers(), *self.objective.buffers()]
        saved: dict[int, int] = {}

        def keep(tensor: Tensor) -> Tensor:
            own = [each for weight in whole.values() for each in weight.all_gather_outputs]
            fixed = {local_of(each).untyped_storage()._cdata for each in (*own, *weights, *buffers)}
            storage = tensor.untyped_storage()
            if storage._cdata not in fixed:
                saved[storage.data_ptr()] = storage.nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            result = gradient(self, *given, **named)
        found["activations"] = sum(saved.values())
        found["weights"] = sum(local_of(weight).nbytes for weight in weights)
        found["gradients"] = sum(local_of(w.grad).nbytes for w in weights if w.grad is not None)
        return result

    def note(self: Update) -> None:
        states = [v for state in self.optimizer.state.values() for v in state.values()]
        found["optimizer"] = sum(local_of(v).nbytes for v in states if isinstance(v, Tensor))
        Path(f"{file}-{self.strategy.world.rank}.json").write_text(
            json.dumps(found), encoding="utf-8"
        )
        end(self)

    Update.gradient, Update.end = watch, note  # type: ignore[assignment, method-assign]


if __name__ == "__main__":
    watch_engine()
    watch_update(sys.argv[1])
    sys.argv = ["plmctl", *sys.argv[2:]]
    app.import_command(sys.argv[1:])
    app.main()
