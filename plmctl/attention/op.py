"""Attention as an operator: which tokens see each other, the effect of positions, the computation.

A model makes one `AttentionOp`; bound to the tokens of a batch it is what cells call:
`env.ops["text"](q, k, v, env)`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from plmctl.attention.kernels.base import Bias, Kernel, KernelPlan, Weigh
from plmctl.attention.kernels.dense import Before, Mask, attend_behind, attend_by
from plmctl.attention.patterns.base import Pattern
from plmctl.attention.patterns.key import make_key
from plmctl.core.batch import Seq
from plmctl.core.graphs import outside_graphs


class PositionScheme(Protocol):
    """The part of a position scheme that an operator calls (`nn/positions.py`)."""

    layers: int  # number of layers that it distinguishes

    def at_layer(self, layer: int) -> PositionScheme:
        """The positions of one layer, counted from 0."""
        ...

    def rotate(
        self, q: Tensor, k: Tensor, q_positions: Tensor, k_positions: Tensor
    ) -> tuple[Tensor, Tensor]:
        """[B, H, T, D] queries and keys before their product."""
        ...

    def turn_values(self, v: Tensor, positions: Tensor) -> Tensor:
        """[B, H, T, D] values before they are added up."""
        ...

    def bias(self, q: Tensor, q_positions: Tensor, k_positions: Tensor) -> Tensor | None:
        """[B | 1, H, Tq, Tk] added to the scaled scores, or None."""

    def every_step(self, x: Tensor, step: int, positions: Tensor) -> Tensor:
        """[B, T, W] the stream before layer `step`."""
        ...


class MapRecorder(Protocol):
    """A recorder of attention maps (`nn/recorder.py`)."""

    def products(
        self, q: Tensor, k: Tensor, plan: KernelPlan, bias: Tensor | None, weigh: Weigh | None
    ) -> None:
        """Record the scores of rotated queries and keys [B, H, T, D], and the attention."""

    def replace_rows(
        self, rows: GlobalRows, q: Tensor, k: Tensor, bias: Tensor | None, weigh: Weigh | None
    ) -> None:
        """Record the values of global tokens instead of the ones from the last products."""


class Surroundings(Protocol):
    """The part of the environment that an operator uses (`nn/env.py`)."""

    @property
    def recorder(self) -> MapRecorder | None:
        """Where attention maps are recorded; None: nowhere."""

    def extend(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """[B, H, M + T, D] each: the cached keys and values, and these."""
        ...


@dataclass(frozen=True, eq=False)
class GlobalRows:
    """The global tokens of a batch, at most G in each row."""

    index: Tensor  # [B, G] positions among the queries, all different within a row
    real: Tensor  # [B, G] bool, False: a token that is not global and only fills up
    plan: Mask  # the tokens that they see, [B, H | 1, G, Tk]

    def take(self, x: Tensor) -> Tensor:
        """[B, H, T, D] -> [B, H, G, D]."""
        return x.gather(2, self._spread(x))

    def put(self, x: Tensor, rows: Tensor) -> Tensor:
        """`x [B, H, T, D]` with `rows [B, H, G, D]` where the tokens are global."""
        rows = torch.where(self.real[:, None, :, None], rows.to(x.dtype), self.take(x))
        return x.scatter(2, self._spread(x), rows)

    def _spread(self, x: Tensor) -> Tensor:
        return self.index[:, None, :, None].expand(-1, x.shape[1], -1, x.shape[3])


@outside_graphs  # works on the values of tensors
def find_global_rows(
    pattern: Pattern, seq: Seq, marked: Tensor, *, start: int = 0
) -> GlobalRows | None:
    """The tokens `marked [B | 1, T]` as global among those of `seq` from `start` on; None if no
    token is marked.
    """
    marked = (marked & seq.real)[:, start:]
    most = int(marked.sum(1).max())
    if not most:
        return None
    index = marked.to(torch.uint8).argsort(dim=1, descending=True, stable=True)[:, :most]
    plan = Mask(pattern.dense(seq, q_index=index + start))
    return GlobalRows(index, marked.gather(1, index), plan)


@dataclass(frozen=True, eq=False)
class BoundOp:
    """Attention over the tokens of one batch."""

    plan: KernelPlan
    position: PositionScheme
    positions: Tensor  # [B | 1, Tq] of the queries
    # [B | 1, Tk] of the keys, if a cache holds more than these tokens
    all_positions: Tensor | None = None
    global_rows: GlobalRows | None = None  # None: the pattern names no global tokens
    # [B | 1, Tk] of the keys, if only some of the tokens are queries
    key_positions: Tensor | None = None

    @property
    def places_of_keys(self) -> Tensor:
        """[B | 1, Tk] positions of the keys that come with the queries."""
        return self.positions if self.key_positions is None else self.key_positions

    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        env: Surroundings,
        *,
        dropout: float = 0.0,
        bias: Bias | None = None,
        weigh: Weigh | None = None,
        before: Before | None = None,
    ) -> Tensor:
        """Rotate queries and keys, add the cached keys, compute attention.

        Args:
            q: [B, H, Tq, D]
            k: [B, H, Tk, D]
            v: [B, H, Tk, D]
            env: Its cache holds the keys of earlier tokens; its recorder sees the products.
            dropout: The rate, on probabilities.
            bias: A bias of the cell, added to that of the positions.
            weigh: The function from scores to weights that replaces softmax. It needs all scores of
                a query, so no kernel leaves out any.
            before: Keys and values that every query sees besides, as `attend_behind` says.

        Returns:
            [B, H, Tq, D]
        """
        own = self.places_of_keys
        q, k = self.position.rotate(q, k, self.positions, own)
        k, v = env.extend(k, self.position.turn_values(v, own))
        keys = own if self.all_positions is None else self.all_positions
        added = _sum(self.position.bias, bias)
        if env.recorder is not None:
            env.recorder.products(q, k, self.plan, added(q, self.positions, keys), weigh)
        if before is not None:
            bias_of_all = added(q, self.positions, keys)
            return attend_behind(
                before, q, k, v, plan=self.plan, bias=bias_of_all, dropout=dropout, weigh=weigh
            )
        if weigh is not None:
            bias_of_all = added(q, self.positions, keys)
            return attend_by(weigh, q, k, v, plan=self.plan, bias=bias_of_all, dropout=dropout)
        return self.plan.attend(
            q, k, v, q_positions=self.positions, k_positions=keys, bias=added, dropout=dropout
        )

    def replace_global(
        self,
        y: Tensor,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        env: Surroundings,
        *,
        dropout: float = 0.0,
        weigh: Weigh | None = None,
    ) -> Tensor:
        """`y` with attention by other queries, keys and values where tokens are global.

        Args:
            y: [B, H, Tq, D] what all tokens have seen.
            q: [B, H, G, D] of the tokens `global_rows`.
            k: [B, H, Tk, D]
            v: [B, H, Tk, D]
            env: Its cache holds these keys of earlier tokens; its recorder sees the products.
            dropout: The rate, on probabilities.
            weigh: The function from scores to weights that replaces softmax.

        Returns:
            [B, H, Tq, D]
        """
        rows = self.global_rows
        assert rows is not None
        own = self.positions.expand(y.shape[0], -1).gather(1, rows.index)
        # keys are rotated together with queries of their own length
        q, _ = self.position.rotate(q, q, own, own)
        k, _ = self.position.rotate(k, k, self.positions, self.positions)
        k, v = env.extend(k, self.position.turn_values(v, self.positions))
        keys = self.positions if self.all_positions is None else self.all_positions
        bias = self.position.bias
        if env.recorder is not None:
            env.recorder.replace_rows(rows, q, k, bias(q, own, keys), weigh)
        if weigh is None:
            seen = rows.plan.attend(
                q, k, v, q_positions=own, k_positions=keys, bias=bias, dropout=dropout
            )
        else:
            added = bias(q, own, keys)
            seen = attend_by(weigh, q, k, v, plan=rows.plan, bias=added, dropout=dropout)
        return rows.put(y, seen)


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
        marked = self.pattern.find_global(seq)
        rows = None if marked is None else find_global_rows(self.pattern, seq, marked, start=start)
        return BoundOp(plan, self.position, positions, all_positions, rows)

    def bind_at(self, seq: Seq, index: Tensor, *, positions: Tensor, layer: int) -> BoundOp:
        """Bind it to a batch in which the queries of one layer are the tokens `index [B, Tq]`.

        Args:
            positions: [B | 1, T] of all tokens.
        """
        plan = Mask(self.pattern.at_layer(layer).dense(seq, q_index=index))
        own = positions.expand(len(index), -1).gather(1, index)
        return BoundOp(plan, self.position.at_layer(layer), own, key_positions=positions)

    def bind_layers(
        self, seq: Seq, *, positions: Tensor, all_positions: Tensor | None = None, start: int = 0
    ) -> list[BoundOp]:
        """Bind it as `bind` does, for each layer; those with equal patterns share a plan. Empty if
        pattern and positions are the same in all layers.
        """
        layers = max(self.pattern.layers, self.position.layers)
        if layers == 1:
            return []
        patterns = [self.pattern.at_layer(layer) for layer in range(layers)]
        bound = {
            make_key(pattern): replace(self, pattern=pattern).bind(
                seq, positions=positions, all_positions=all_positions, start=start
            )
            for pattern in {make_key(pattern): pattern for pattern in patterns}.values()
        }
        return [
            replace(bound[make_key(pattern)], position=self.position.at_layer(layer))
            for layer, pattern in enumerate(patterns)
        ]


def _sum(one: Bias, other: Bias | None) -> Bias:
    if other is None:
        return one

    def both(q: Tensor, q_positions: Tensor, k_positions: Tensor) -> Tensor | None:
        first, second = one(q, q_positions, k_positions), other(q, q_positions, k_positions)
        return second if first is None else first if second is None else first + second

    return both
