"""Residual streams that a backward pass computes back from their end, without stored
activations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

from plmctl.core.errors import PlmctlError

Change = Callable[[Tensor], Tensor]
Join = Literal["mean", "concatenate"]


class ReversiblePair:
    """Two streams, both `x` at first; each step adds a function of the one to the other.

        step 1   y1 = x1 + a(x2)           back   x2 = y2 - f(y1)
        step 2   y2 = x2 + f(y1)                  x1 = y1 - a(x2)

    (Gomez et al., 2017, arXiv:1707.04585, sec. 3; Kitaev et al., 2020, arXiv:2001.04451, sec. 3.)
    The backward pass keeps only the two streams at the end, and the states of the random
    generators, so that dropout drops the same numbers. The input of a step is computed again when
    its gradient is needed; gradients flow through the graph of the forward pass, so that a step may
    read any other tensor, too. `stored`: activations are stored as usual. `join`: how both
    streams become one, see `joined`.
    """

    def __init__(self, x: Tensor, *, stored: bool = False, join: Join = "mean") -> None:
        self._stored = stored or not torch.is_grad_enabled()
        self._join = join
        # the two streams: the next step changes one and reads the other
        self._changed: Tensor | None = x
        self._read: Tensor | None = x
        self._steps = 0
        self._end: tuple[Tensor, Tensor] | None = None  # values of both, after `_position` steps
        self._position = 0

    def step(self, change: Change) -> None:
        """Add `change` of the one stream to the other; it is called again in the backward pass."""
        changed, read = self._changed, self._read
        assert changed is not None
        assert read is not None
        number, needs_gradient = self._steps, read.requires_grad
        self._steps += 1
        if self._stored:
            self._changed, self._read = read, changed + change(read)
            return
        first = [read]  # released after the first use

        def compute(_: Tensor) -> Tensor:
            return change(first.pop()) if first else self._recompute(number, needs_gradient, change)

        with set_checkpoint_early_stop(False):  # the end of the step is needed on the way back
            # the empty tensor names the device of the generator
            y = checkpoint(compute, read.new_empty(0), use_reentrant=False)
        self._changed, self._read = read, changed + y

    def joined(self) -> Tensor:
        """[..., W] the mean of both streams, or [..., 2 W] the first one, then the second."""
        assert self._changed is not None
        assert self._read is not None
        if self._join == "mean":
            return (self._changed + self._read) / 2
        first, second = self._changed, self._read
        return torch.cat([second, first] if self._steps % 2 else [first, second], -1)

    def finish(self) -> Tensor:
        """`joined`, after the last step; from here on only the values at the end are kept."""
        last = self.joined()
        assert self._changed is not None
        assert self._read is not None
        if not self._stored:
            self._end, self._position = (self._changed.detach(), self._read.detach()), self._steps
        self._changed = self._read = None
        return last

    def _recompute(self, number: int, needs_gradient: bool, change: Change) -> Tensor:
        """The output of step `number`, from the values after it; then the values before it are
        kept.
        """
        if self._end is None or self._position != number + 1:
            raise PlmctlError(
                "a reversible stack has one backward pass, from its end; an objective that"
                " needs its gradients twice needs model.stack.reversible=false"
            )
        read, written = self._end
        y = change(read.requires_grad_(needs_gradient) if needs_gradient else read)
        self._end, self._position = (written - y.detach(), read.detach()), number
        return y
