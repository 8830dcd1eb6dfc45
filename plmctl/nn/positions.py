"""Position schemes: what the position of a token adds to embeddings, queries and keys, scores, or
the stream between layers.
"""

from __future__ import annotations

import math
from typing import Any, cast

import torch
from torch import Tensor, nn

from plmctl.attention.kernels.base import by_distance
from plmctl.core.errors import ConfigError, nearest
from plmctl.core.parts import base_of, part_of
from plmctl.core.values import Count

# the choices of `Sinusoidal`
LAYOUTS, FREQUENCIES = ("halves", "interleaved"), ("paper", "released")
PAIRS = ("halves", "adjacent")  # the columns that `Rotary` turns together


@base_of("position")
class Position(nn.Module):
    """Five hooks, no-ops here; a subclass overrides what its scheme does. Positions are integer
    tensors [B | 1, T].
    """

    max_length: int | None = None  # longest row; None = any
    layers: int = 1  # number of layers that it distinguishes; 1 = the same for all
    turns_values: bool = False  # whether `turn_values` changes them

    def at_layer(self, layer: int) -> Position:
        """The positions of one layer, counted from 0."""
        return self

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """[B, T, W] token embeddings -> the same with their positions."""
        return x

    def rotate(
        self, q: Tensor, k: Tensor, q_positions: Tensor, k_positions: Tensor
    ) -> tuple[Tensor, Tensor]:
        """[B, H, T, D] queries and keys before their product."""
        return q, k

    def turn_values(self, v: Tensor, positions: Tensor) -> Tensor:
        """[B, H, T, D] values before they are added up."""
        return v

    def bias(self, q: Tensor, q_positions: Tensor, k_positions: Tensor) -> Tensor | None:
        """[B | 1, H, Tq, Tk] added to the scaled scores, or None."""
        return None

    def every_step(self, x: Tensor, step: int, positions: Tensor) -> Tensor:
        """[B, T, W] the stream before layer `step`, counted from 0 (Universal Transformer)."""
        return x

    def check_layers(self, count: int) -> None:
        """Raise ConfigError if it cannot serve so many layers."""


@part_of("position")
class NoPosition(Position):
    """No positions: a model can infer them from a causal pattern (Haviv et al., 2022,
    arXiv:2203.16634).
    """


@part_of("position")
class Learned(Position):
    """`x + table[position]`, one learned vector for each position (Devlin et al., 2019,
    arXiv:1810.04805, sec. 3).
    """

    def __init__(self, *, width: int, max_length: int) -> None:
        super().__init__()
        self.max_length = max_length
        self.table = nn.Embedding(max_length, width)

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        check_rows(x, self.table, positions)
        return x + self.table(positions)


@part_of("position")
class LearnedByLayer(Position):
    """`x + table_l[position]` before every layer l, each with learned vectors of its own, and
    nothing in the embedding (Al-Rfou et al., 2019, arXiv:1808.04444, "Positional Embeddings").
    """

    def __init__(self, *, width: int, max_length: int, num_layers: Count) -> None:
        super().__init__()
        self.max_length = max_length
        self.tables = nn.ModuleList(nn.Embedding(max_length, width) for _ in range(num_layers))

    def every_step(self, x: Tensor, step: int, positions: Tensor) -> Tensor:
        check_rows(x, self.tables[0], positions)
        self.check_layers(step + 1)
        return x + self.tables[step](positions)

    def check_layers(self, count: int) -> None:
        if count > len(self.tables):
            allowed = f"at least {count}, a table for each layer"
            fix = f"position.num_layers={count}"
            raise ConfigError("position.num_layers", len(self.tables), allowed, fix=fix)


@part_of("position")
class Sinusoidal(Position):
    """`x + [sin(p w_0) ... | cos(p w_0) ...]`, w_i = base^(-2i / W) (Vaswani et al., 2017,
    arXiv:1706.03762, sec. 3.5).

    `layout="interleaved"`: sin(p w_0), cos(p w_0), sin(p w_1), ... as in the paper; "halves": all
    sines, then all cosines, as in the authors' code. `frequencies="released"`: w_i = base^(-i /
    (W/2 - 1)), so that the last is 1 / base, as in that code too (tensor2tensor,
    common_attention.py, get_timing_signal_1d); those of fairseq begin at `first` = padding id + 1.
    """

    def __init__(
        self,
        *,
        width: int,
        base: float = 10000.0,
        layout: str = "halves",
        frequencies: str = "paper",
        first: int = 0,
    ) -> None:
        super().__init__()
        if width % 2:
            raise ConfigError("size.width", width, "must be even for sinusoidal positions")
        if layout not in LAYOUTS:
            raise ConfigError(
                "layout", layout, f"one of {', '.join(LAYOUTS)}{nearest(layout, LAYOUTS)}"
            )
        if frequencies not in FREQUENCIES:
            allowed = f"one of {', '.join(FREQUENCIES)}{nearest(frequencies, FREQUENCIES)}"
            raise ConfigError("frequencies", frequencies, allowed)
        self.width, self.base, self.first = width, base, first
        self.interleaved = layout == "interleaved"
        self.span = width if frequencies == "paper" else max(1, width - 2)  # base^(-2i / span)

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        return x + self.waves(positions).to(x.dtype)

    def waves(self, numbers: Tensor) -> Tensor:
        """[..., W] the sines and cosines of `numbers [...]`, in fp32."""
        angles = _angles(numbers + self.first, self.width, self.base, self.span)
        waves = [angles.sin(), angles.cos()]
        return torch.stack(waves, -1).flatten(-2) if self.interleaved else torch.cat(waves, -1)


@part_of("position")
class EveryStep(Sinusoidal):
    """`x + waves(position) + waves(t)` before layer t of each step, and nothing in the embedding:
    where a token stands, and how often it was computed (Dehghani et al., 2019, arXiv:1807.03819,
    sec. 2.1).

    Both begin at `first`, in the paper 1. `learned_steps`: so many learned vectors replace
    waves(t), as in the authors' code (tensor2tensor, universal_transformer_util.py,
    add_step_timing_signal). In training all positions of a batch are moved by one random number
    from 0 to `shift`, another one at every step. So later positions are learned, too (sec. 3.3;
    add_position_timing_signal).
    """

    def __init__(
        self,
        *,
        width: int,
        base: float = 10000.0,
        layout: str = "interleaved",
        frequencies: str = "paper",
        first: int = 1,
        learned_steps: Count | None = None,
        shift: int = 0,
    ) -> None:
        super().__init__(
            width=width, base=base, layout=layout, frequencies=frequencies, first=first
        )
        if shift < 0:
            raise ConfigError("position.shift", shift, "0, or the farthest that positions move")
        self.shift = shift
        self.steps = nn.Embedding(learned_steps, width) if learned_steps else None

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        return x

    def every_step(self, x: Tensor, step: int, positions: Tensor) -> Tensor:
        if self.training and self.shift:
            moved = torch.randint(self.shift + 1, (1,), device=positions.device)
            positions = positions + moved
        return x + (self.waves(positions) + self._signal_time(step, positions)).to(x.dtype)

    def _signal_time(self, step: int, positions: Tensor) -> Tensor:
        """[W] the vector of a step."""
        if self.steps is None:
            return self.waves(positions.new_tensor(step))
        if step >= self.steps.num_embeddings:
            allowed = f"at least {step + 1}, a vector for each layer"
            raise ConfigError("position.learned_steps", self.steps.num_embeddings, allowed)
        return self.steps.weight[step]


@part_of("position")
class Rotary(Position):
    """Turns each pair of columns of q and k by `position * base^(-2i / D)` (Su et al., 2021,
    arXiv:2104.09864, sec. 3.2.2).

    Differs: with `pairs=halves` the columns of a pair are half a head apart (GPT-NeoX), a fixed
    permutation of the head's columns.

    Args:
        base: A number, or one for each layer: ModernBERT turns its global layers by another base
            than its local ones (Warner et al., 2024, arXiv:2412.13663, sec. 2.1.1).
        pairs: The two columns of pair i: "halves", i and i + D/2; "adjacent", 2i and 2i + 1, as in
            the paper.
        values: Values turn, too (RoFormer's `rotary_value`).
    """

    def __init__(
        self, *, base: float | list[float] = 10000.0, pairs: str = "halves", values: bool = False
    ) -> None:
        super().__init__()
        if pairs not in PAIRS:
            raise ConfigError("pairs", pairs, f"one of {', '.join(PAIRS)}{nearest(pairs, PAIRS)}")
        bases = list(base) if isinstance(base, list | tuple) else [base]
        if not bases or any(not each > 0 for each in bases):
            allowed = "a number above 0, or one for each layer"
            raise ConfigError("base", base, allowed, fix="position.base=10000")
        self.base, self.layers = bases[0], len(bases)
        self.adjacent, self.turns_values = pairs == "adjacent", values
        own = {each: Rotary(base=each, pairs=pairs, values=values) for each in bases[1:]}
        # in a tuple: parts without weights, which are not submodules
        self._by_layer = tuple(own.get(each) for each in bases) if own else ()

    def at_layer(self, layer: int) -> Position:
        return (self._by_layer[layer] if self._by_layer else None) or self

    def check_layers(self, count: int) -> None:
        if self.layers not in (1, count):
            allowed = f"a number, or {count} numbers: one for each layer"
            raise ConfigError("position.base", f"{self.layers} numbers", allowed)

    def rotate(
        self, q: Tensor, k: Tensor, q_positions: Tensor, k_positions: Tensor
    ) -> tuple[Tensor, Tensor]:
        return self._turn(q, q_positions), self._turn(k, k_positions)

    def turn_values(self, v: Tensor, positions: Tensor) -> Tensor:
        return self._turn(v, positions) if self.turns_values else v

    def _turn(self, x: Tensor, positions: Tensor) -> Tensor:
        kind = torch.float64 if x.dtype == torch.float64 else torch.float32
        # [B | 1, 1, T, D / 2]
        angles = _angles(positions, x.shape[-1], self.base, kind=kind)[:, None]
        sin, cos = angles.sin().to(x.dtype), angles.cos().to(x.dtype)
        if self.adjacent:
            left, right = x.unflatten(-1, (-1, 2)).unbind(-1)
            turned = [left * cos - right * sin, right * cos + left * sin]
            return torch.stack(turned, -1).flatten(-2)
        left, right = x.chunk(2, -1)
        return torch.cat([left * cos - right * sin, right * cos + left * sin], -1)


@part_of("position")
class ALiBi(Position):
    """Score `- slope_h |q - k|`, slopes a geometric series down to 2^-8 (Press et al., 2022,
    arXiv:2108.12409, sec. 3).

    Differs: |q - k|, so that it also serves patterns that look ahead; num_heads that is no power of
    two continues the series.
    """

    def __init__(self, *, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads

    @by_distance
    def bias(self, q: Tensor, q_positions: Tensor, k_positions: Tensor) -> Tensor | None:
        # [B | 1, 1, Tq, Tk]
        distance = (q_positions[:, :, None] - k_positions[:, None, :]).abs()[:, None]
        heads = torch.arange(1, self.num_heads + 1, device=q.device)
        slopes = torch.exp2(-8.0 * heads / self.num_heads)
        return (-slopes[:, None, None] * distance).to(q.dtype)


@part_of("position")
class RelativeBuckets(Position):
    """Score `+ table[bucket(k - q), head]`: one learned number a head for each range of distances,
    the same in every layer.

    Where `bidirectional`, half of the `buckets` are for keys behind the query, else all are for
    keys at it or before it. Each side has n of them. The first n/2 hold one distance each; the
    others hold ranges that widen in proportion up to `max_distance`, and the last also all beyond.
    In short, bucket(a) = a for a < n/2, else `min(n - 1, n/2 + floor(ln(a / (n/2)) /
    ln(max_distance / (n/2)) n/2))`. (Raffel et al., 2020, arXiv:1910.10683, sec. 2.1;
    mesh_tensorflow, transformer_layers.py, _relative_position_bucket.)
    """

    def __init__(
        self, *, num_heads: int, bidirectional: bool, buckets: int = 32, max_distance: int = 128
    ) -> None:
        super().__init__()
        exact = buckets // (4 if bidirectional else 2)
        if exact < 1 or buckets % (4 if bidirectional else 2):
            allowed = (
                "a multiple of 4: two directions, half of each exact"
                if bidirectional
                else "an even number"
            )
            raise ConfigError("buckets", buckets, allowed)
        if max_distance <= exact:
            allowed = f"more than the {exact} distances that have buckets of their own"
            raise ConfigError("max_distance", max_distance, allowed)
        self.bidirectional, self.exact, self.max_distance = bidirectional, exact, max_distance
        self.table = nn.Embedding(buckets, num_heads)

    def bucket(self, offset: Tensor) -> Tensor:
        """The bucket of each `offset` = position of the key - position of the query."""
        far = offset.abs() if self.bidirectional else (-offset).clamp(min=0)
        ratio = torch.log(far.clamp(min=1).float() / self.exact) / math.log(
            self.max_distance / self.exact
        )
        wide = (self.exact + (ratio * self.exact).long()).clamp(max=2 * self.exact - 1)
        bucket = torch.where(far < self.exact, far, wide)
        return bucket + (offset > 0) * 2 * self.exact if self.bidirectional else bucket

    @by_distance
    def bias(self, q: Tensor, q_positions: Tensor, k_positions: Tensor) -> Tensor | None:
        buckets = self.bucket(k_positions[:, None, :] - q_positions[:, :, None])  # [B | 1, Tq, Tk]
        return self.table(buckets).permute(0, 3, 1, 2).to(q.dtype)


@part_of("position")
class RelativeBucketsByLayer(Position):
    """`RelativeBuckets` with a table of its own for each layer (Chung et al., 2023,
    arXiv:2304.09151, umT5, released code).
    """

    def __init__(
        self,
        *,
        num_heads: int,
        num_layers: Count,
        bidirectional: bool,
        buckets: int = 32,
        max_distance: int = 128,
    ) -> None:
        super().__init__()
        how: Any = {"num_heads": num_heads, "bidirectional": bidirectional}
        how |= {"buckets": buckets, "max_distance": max_distance}
        self.layers = num_layers
        self.by_layer = nn.ModuleList(RelativeBuckets(**how) for _ in range(num_layers))

    def at_layer(self, layer: int) -> Position:
        return cast(Position, self.by_layer[layer])

    def check_layers(self, count: int) -> None:
        if count != self.layers:
            allowed = f"{count}, a table for each layer"
            fix = f"position.num_layers={count}"
            raise ConfigError("position.num_layers", self.layers, allowed, fix=fix)

    @by_distance
    def bias(self, q: Tensor, q_positions: Tensor, k_positions: Tensor) -> Tensor | None:
        return self.at_layer(0).bias(q, q_positions, k_positions)


@part_of("position")
class LearnedBuckets(Learned):
    """A learned vector for each position, and a learned number for each range of distances:
    `Learned` and a bidirectional `RelativeBuckets` in one (Song et al., 2020, arXiv:2004.09297,
    MPNet, sec. 3.1 and released code).
    """

    def __init__(
        self,
        *,
        width: int,
        num_heads: int,
        max_length: int,
        buckets: int = 32,
        max_distance: int = 128,
    ) -> None:
        super().__init__(width=width, max_length=max_length)
        self.buckets = RelativeBuckets(
            num_heads=num_heads, bidirectional=True, buckets=buckets, max_distance=max_distance
        )

    @by_distance
    def bias(self, q: Tensor, q_positions: Tensor, k_positions: Tensor) -> Tensor | None:
        return self.buckets.bias(q, q_positions, k_positions)


def check_rows(x: Tensor, table: nn.Module, positions: Tensor) -> None:
    """Raise ConfigError for rows [B, T, W] with positions beyond the table; texts side by side in
    a long row may all be within it.
    """
    longest = int(table.num_embeddings)  # type: ignore[arg-type]
    if x.shape[1] > longest and int(positions.max()) >= longest:
        allowed = f"at most {longest}, the positions that this model has learned"
        raise ConfigError("format.max_length", x.shape[1], allowed)


def _angles(
    positions: Tensor,
    width: int,
    base: float,
    span: int | None = None,
    kind: torch.dtype = torch.float32,
) -> Tensor:
    """[B | 1, T, width / 2] position times frequency, base^(-2i / span), in the type `kind`; `span`
    is the width.
    """
    step = torch.arange(0, width, 2, device=positions.device, dtype=kind)
    return positions[..., None].to(kind) * torch.exp(step * (-math.log(base) / (span or width)))
