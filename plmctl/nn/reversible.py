"""Residual streams that are computed back from their end, so that a backward pass needs no stored
activations.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

from plmctl.core.errors import PlmctlError

Change = Callable[[Tensor], Tensor]


class ReversiblePair:
    """Two streams, both `x` at first; each step changes one by what it makes of the other.

        step 1   y1 = x1 + a(x2)           back   x2 = y2 - f(y1)
        step 2   y2 = x2 + f(y1)                  x1 = y1 - a(x2)

    (Gomez et al., 2017, arXiv:1707.04585, sec. 3; Kitaev et al., 2020, arXiv:2001.04451, sec. 3.)
    Of all steps the backward pass is given the two streams at the end, and the states of the random
    generators, so that dropout drops the same. What a step reads is computed again when its
    gradient is asked for; gradients flow through the graph that the forward pass has made, so that
    a step may read any other tensor, too. `stored`: activations are stored as ever.
    """

    def __init__(self, x: Tensor, *, stored: bool = False) -> None:
        self._stored = stored or not torch.is_grad_enabled()
        # the stream that the next step changes, and the one that it reads
        self._changed: Tensor | None = x
        self._read: Tensor | None = x
        self._steps = 0
        self._end: tuple[Tensor, Tensor] | None = None  # values of both, after `_place` steps
        self._place = 0

    def step(self, change: Change) -> None:
        """Add `change` of the one stream to the other; it is called again in the backward pass."""
        changed, read = self._changed, self._read
        assert changed is not None
        assert read is not None
        if self._stored:
            self._changed, self._read = read, changed + change(read)
            return
        number, needs_gradient = self._steps, read.requires_grad
        first = [read]  # no longer held once it was read

        def made(_: Tensor) -> Tensor:
            return change(first.pop()) if first else self._again(number, needs_gradient, change)

        with set_checkpoint_early_stop(False):  # the end of the step is what leads back
            # the empty tensor says of which device the generator is kept
            y = checkpoint(made, read.new_empty(0), use_reentrant=False)
        self._changed, self._read = read, changed + y
        self._steps += 1

    def mean(self) -> Tensor:
        """Half the sum of both streams."""
        assert self._changed is not None
        assert self._read is not None
        return (self._changed + self._read) / 2

    def finish(self) -> Tensor:
        """`mean`, after the last step; from here on only the values at the end are kept."""
        last = self.mean()
        assert self._changed is not None
        assert self._read is not None
        if not self._stored:
            self._end, self._place = (self._changed.detach(), self._read.detach()), self._steps
        self._changed = self._read = None
        return last

    def _again(self, number: int, needs_gradient: bool, change: Change) -> Tensor:
        """What step `number` made, from the values behind it; those before it take their place."""
        if self._end is None or self._place != number + 1:
            raise PlmctlError(
                "a reversible stack is gone back through once, from its end; an objective that"
                " needs its gradients twice takes model.stack.reversible=false"
            )
        read, written = self._end
        y = change(read.requires_grad_(needs_gradient) if needs_gradient else read)
        self._end, self._place = (written - y.detach(), read.detach()), number
        return y
