"""Attention as an operator: which tokens see each other, the effect of positions, the computation.

A model makes one `AttentionOp`; bound to the tokens of a batch it is what cells call:
`env.ops["text"](q, k, v, env)`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from plmctl.attention.kernels.base import Bias, Kernel, KernelPlan
from plmctl.attention.patterns.base import Pattern
from plmctl.core.batch import Seq


class PositionScheme(Protocol):
    """The part of a position scheme that an operator calls (`nn/positions.py`)."""

    def rotate(
        self, q: Tensor, k: Tensor, q_positions: Tensor, k_positions: Tensor
    ) -> tuple[Tensor, Tensor]:
        """[B, H, T, D] queries and keys before their product."""
        ...

    def bias(self, q: Tensor, q_positions: Tensor, k_positions: Tensor) -> Tensor | None:
        """[B | 1, H, Tq, Tk] added to the scaled scores, or None."""

    def every_step(self, x: Tensor, step: int) -> Tensor:
        """[B, T, W] the stream before layer `step`."""
        ...


class MapRecorder(Protocol):
    """A recorder of attention maps (`nn/recorder.py`)."""

    def products(self, q: Tensor, k: Tensor, plan: KernelPlan, bias: Tensor | None) -> None:
        """Record the scores of rotated queries and keys [B, H, T, D], and the attention."""


class Surroundings(Protocol):
    """The part of the environment that an operator uses (`nn/env.py`)."""

    @property
    def recorder(self) -> MapRecorder | None:
        """Where attention maps are recorded; None: nowhere."""

    def extend(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """[B, H, M + T, D] each: the cached keys and values, and these."""
        ...


@dataclass(frozen=True, eq=False)
class BoundOp:
    """Attention over the tokens of one batch."""

    plan: KernelPlan
    position: PositionScheme
    positions: Tensor  # [B | 1, Tq] of the queries
    # [B | 1, Tk] of the keys, if a cache holds more than these tokens
    all_positions: Tensor | None = None

    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        env: Surroundings,
        *,
        dropout: float = 0.0,
        bias: Bias | None = None,
    ) -> Tensor:
        """Rotate queries and keys, add the cached keys, compute attention.

        Args:
            q: [B, H, Tq, D]
            k: [B, H, Tk, D]
            v: [B, H, Tk, D]
            env: Its cache holds the keys of earlier tokens; its recorder sees the products.
            dropout: The rate, on probabilities.
            bias: A bias of the cell, added to that of the positions.

        Returns:
            [B, H, Tq, D]
        """
        q, k = self.position.rotate(q, k, self.positions, self.positions)
        k, v = env.extend(k, v)
        keys = self.positions if self.all_positions is None else self.all_positions
        added = _sum(self.position.bias, bias)
        if env.recorder is not None:
            env.recorder.products(q, k, self.plan, added(q, self.positions, keys))
        return self.plan.attend(
            q, k, v, q_positions=self.positions, k_positions=keys, bias=added, dropout=dropout
        )


@dataclass(frozen=True, eq=False)
class AttentionOp:
    """The attention of a model, for any batch."""

    pattern: Pattern
    position: PositionScheme
    kernel: Kernel

    def bind(
        self, seq: Seq, *, positions: Tensor, all_positions: Tensor | None = None, start: int = 0
    ) -> BoundOp:
        """Bind it to a batch: the tokens of `seq` from `start` on see all of `seq`."""
        plan = self.kernel.plan(self.pattern, seq, start=start)
        return BoundOp(plan, self.position, positions, all_positions)


def _sum(one: Bias, other: Bias | None) -> Bias:
    if other is None:
        return one

    def both(q: Tensor, q_positions: Tensor, k_positions: Tensor) -> Tensor | None:
        first, second = one(q, q_positions, k_positions), other(q, q_positions, k_positions)
        return second if first is None else first if second is None else first + second

    return both
