"""Sums of gradients over processes that begin while the backward pass still runs.

A backward pass computes the gradients of the last layers first. Parameters whose gradients follow
each other form a bucket; when the gradients of a bucket are complete, one all-reduce for all of
them starts, and the backward pass continues meanwhile (Li et al., 2020, arXiv:2006.15704, sec.
3.2). All processes must start the same all-reduces in the same order, whatever order their
gradients come in: a bucket waits for those before it.

    parameters   w1 w2 | w3 | w4 w5        buckets, from the last parameter on
    backward     w5 w4 -> send  w3 -> send  w2 w1 -> send
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn

from plmctl.training.processes.world import explain_loss_of_process

# size in torch's DistributedDataParallel: large enough for the network, small enough to start early
BUCKET_BYTES = 25 * 2**20


@dataclass
class Bucket:
    """Parameters whose gradients are summed by one all-reduce."""

    members: list[nn.Parameter]
    missing: set[nn.Parameter]  # parameters without a gradient in this backward pass so far
    flat: Tensor | None = None  # all gradients in one vector, once they are sent
    sum: dist.Work | None = None

    def send(self) -> None:
        """Start the all-reduce; a parameter without a gradient counts as 0."""
        self.flat = flatten(self.members)
        with explain_loss_of_process():
            self.sum = dist.all_reduce(self.flat, async_op=True)

    def receive(self) -> None:
        """Wait for the sums, and store them as gradients."""
        assert self.sum is not None
        assert self.flat is not None
        with explain_loss_of_process():
            self.sum.wait()
        unflatten(self.flat, self.members)
        self.flat, self.sum = None, None


class Buckets:
    """The gradients of `parameters`, summed over processes once in every update.

    Parameters without a gradient in the last update on any process (heads that are not used, frozen
    layers) are in no bucket: they would delay the others. If one is used again, it is summed at the
    end.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], *, bucket_bytes: int) -> None:
        self.parameters, self.bucket_bytes = list(parameters), bucket_bytes
        self._hooked: set[nn.Parameter] = set()
        self._sending = False
        self._group([p.requires_grad for p in self.parameters])

    def _group(self, expected: list[bool]) -> None:
        """Group the parameters that are `expected` to have a gradient."""
        self._expected: list[bool] = expected
        self._buckets: list[Bucket] = []
        size = 0
        for parameter, has_gradient in zip(
            reversed(self.parameters), reversed(expected), strict=True
        ):
            if not has_gradient:
                continue
            own = parameter.numel() * parameter.element_size()
            last = self._buckets[-1].members if self._buckets else []
            fits = size + own <= self.bucket_bytes and last and last[0].dtype == parameter.dtype
            if not fits:
                self._buckets.append(Bucket([], set()))
                size = 0
            self._buckets[-1].members.append(parameter)
            size += own
            if parameter.requires_grad and parameter not in self._hooked:
                self._hooked.add(parameter)
                parameter.register_post_accumulate_grad_hook(self._arrive)
        self._home = {p: bucket for bucket in self._buckets for p in bucket.members}
        self._start_over()

    def _start_over(self) -> None:
        self._sent = 0
        for bucket in self._buckets:
            bucket.missing = set(bucket.members)

    @contextmanager
    def sending(self) -> Iterator[None]:
        """Mark the last backward pass of this process, in which complete buckets are sent at
        once.
        """
        self._sending = True
        try:
            yield
        finally:
            self._sending = False

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Mark a backward pass before others, in which nothing is sent."""
        yield

    def _arrive(self, parameter: nn.Parameter) -> None:
        """Called by autograd when the gradient of `parameter` is complete."""
        if not self._sending or parameter not in self._home:
            return
        missing = self._home[parameter].missing
        assert parameter in missing, "a backward pass has made the gradient of a weight twice"
        missing.remove(parameter)
        while self._sent < len(self._buckets) and not self._buckets[self._sent].missing:
            self._send_next()

    def _send_next(self) -> None:
        self._buckets[self._sent].send()
        self._sent += 1

    def finish(self) -> None:
        """Send the remaining buckets, and wait: each parameter has the sum of all processes'
        gradients, or None if no process has one.
        """
        own = torch.tensor([p.grad is not None for p in self.parameters], dtype=torch.uint8)
        while self._sent < len(self._buckets):
            self._send_next()
        with explain_loss_of_process():
            dist.all_reduce(own, op=dist.ReduceOp.MAX)
        used = [bool(flag) for flag in own.tolist()]
        live = {p for p, flag in zip(self.parameters, used, strict=True) if flag}
        late = Bucket([p for p in self.parameters if p in live and p not in self._home], set())
        if late.members:
            late.send()
        for bucket in [*self._buckets, *([late] if late.members else [])]:
            bucket.receive()
        for parameter in self.parameters:
            if parameter not in live:
                parameter.grad = None
        if used != self._expected:
            self._group(used)
        else:
            self._start_over()


def flatten(parameters: Sequence[nn.Parameter]) -> Tensor:
    """Their gradients as one vector, 0 for parameters without one."""
    return torch.cat(
        [(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in parameters]
    )


def unflatten(flat: Tensor, parameters: Sequence[nn.Parameter]) -> None:
    """The inverse: each gradient is a view of its part of `flat`."""
    for p, part in zip(parameters, flat.split([p.numel() for p in parameters]), strict=True):
        p.grad = part.view_as(p)
