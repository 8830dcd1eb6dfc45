"""Data-parallel training: every process has all tensors and a share of the rows."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn

from plmctl.training.processes.world import World, explain_loss_of_process
from plmctl.training.strategy.base import M
from plmctl.training.strategy.buckets import BUCKET_BYTES, Buckets
from plmctl.training.strategy.single import Single


class Replicated(Single):
    """Data-parallel training: what a process holds is what `Single` holds, gradients apart.

    They are summed in buckets while the backward pass of the last micro-batch still runs
    (`buckets.py`).
    """

    def __init__(self, world: World, *, bucket_bytes: int = BUCKET_BYTES) -> None:
        super().__init__(world)
        self.bucket_bytes = bucket_bytes

    def place(self, module: M) -> M:
        return copy_from_main(module, self.world.device)

    def train(self, parameters: Sequence[nn.Parameter]) -> None:
        super().train(parameters)
        self.buckets = Buckets(parameters, bucket_bytes=self.bucket_bytes)

    def backward(self, loss: Tensor, *, last: bool) -> None:
        with self.buckets.sending() if last else self.buckets.holding():
            loss.backward()

    def finish_backward(self) -> None:
        self.buckets.finish()


def copy_from_main(module: M, device: torch.device) -> M:
    """The module on this device, with the weights that it has in the main process."""
    module.to(device)
    with torch.no_grad(), explain_loss_of_process():
        for tensor in [*module.parameters(), *module.buffers()]:
            flat = tensor.detach().contiguous().view(-1)
            dist.broadcast(flat.view(torch.uint8), 0)  # gloo does not know every type
            tensor.copy_(flat.view_as(tensor))
    return module
