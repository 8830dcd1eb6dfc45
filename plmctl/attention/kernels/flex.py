"""FlexAttention on CUDA: one compiled kernel that skips blocks and keeps no scores.

The block mask is made once for a batch, from the blocks that the pattern itself says each head may
need; for static patterns it is cached. In blocks that a band fills, no mask is read. A bias that
depends on the distance of two tokens is read from a table of all distances, [H, 2 n + 1]. It is
read while scores are computed. (Dong et al., 2024, arXiv:2412.05496;
torch.nn.attention.flex_attention of torch 2.11 to 2.13.)
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from plmctl.attention.kernels.banded import Banded, StructuredPlan
from plmctl.attention.kernels.bands import Band
from plmctl.attention.kernels.base import (
    Bias,
    Kernel,
    KernelPlan,
    changes_scores,
    is_by_distance,
    refuse_dropout,
)
from plmctl.attention.kernels.dense import Mask
from plmctl.attention.kernels.tiling import group_heads, share_of_blocks
from plmctl.attention.patterns.base import Full, Pattern
from plmctl.attention.patterns.key import make_key
from plmctl.core.batch import Seq
from plmctl.core.errors import ConfigError
from plmctl.core.graphs import outside_graphs
from plmctl.core.parts import part_of

BLOCK = 128  # tokens; FlexAttention's own
_KEPT = 256  # block masks of static patterns, one for each that a layer has; graphs

FlexAttention = Callable[..., Tensor]
# (score, b, h, q, k) -> score, as FlexAttention calls it for a single pair
ScoreMod = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]


@functools.cache
def compile_flex() -> FlexAttention:
    """`flex_attention`, compiled once for all models; without compilation it stores all scores."""
    from torch._dynamo import config
    from torch.nn.attention.flex_attention import flex_attention

    # one graph for each kind of pattern and length; beyond torch's 8 it would store all scores
    config.recompile_limit = max(config.recompile_limit, _KEPT)
    return torch.compile(flex_attention)


@part_of("kernel")
class Flex(Kernel):
    """FlexAttention on CUDA, the banded kernel on other devices. It has no dropout on
    probabilities, and it supports only position biases by distance, as the dense and the banded
    kernel do, too.
    """

    stores_scores = False
    least_head_width = 16
    devices: ClassVar[frozenset[str]] = frozenset({"cuda"})

    def __init__(self) -> None:
        self.elsewhere = Banded(block=BLOCK)
        self._masks: OrderedDict[Hashable, Any] = OrderedDict()

    @outside_graphs  # works on the values of tensors
    def plan(self, pattern: Pattern, seq: Seq, *, start: int = 0) -> KernelPlan:
        if start:  # only the new tokens of a growing text: few queries
            return Mask.of(pattern, seq, k_offset=start)
        if seq.ids.device.type not in self.devices:
            return self.elsewhere.plan(pattern, seq)
        place = seq.tracks.get("position")
        farthest = seq.ids.shape[1] - 1 if place is None else int(place.max() - place.min())
        mask = self.block_mask(pattern, seq)
        return FlexPlan(pattern, seq, mask, compile_flex(), farthest)

    def block_mask(self, pattern: Pattern, seq: Seq) -> Any:
        """FlexAttention's BlockMask of the pattern in this batch; None: everything is allowed."""
        from torch.nn.attention.flex_attention import BlockMask

        active = pattern.simplify(seq)
        if isinstance(active, Full):
            return None
        length, static = seq.ids.shape[1], active.static
        key = (make_key(active), length, seq.ids.device)
        if static and key in self._masks:
            return self._masks[key]
        needed, whole = _find_blocks(active, seq)
        mask = BlockMask.from_kv_blocks(
            *_list_blocks(needed & ~whole),
            *_list_blocks(whole),
            BLOCK_SIZE=BLOCK,
            mask_mod=active.bind(seq),
            seq_lengths=(length, length),
        )
        if static:
            self._masks[key] = mask
            if len(self._masks) > _KEPT:
                self._masks.popitem(last=False)
        return mask

    def problem(
        self, pattern: Pattern, length: int, *, bias: Bias | None, dropout: float
    ) -> ConfigError | None:
        if dropout:
            return refuse_dropout("flex", dropout)
        return None if bias is None or is_by_distance(bias) else _refuse_bias()

    def share(self, pattern: Pattern, length: int) -> float:
        return share_of_blocks(pattern, length, BLOCK)

    def remark(self, pattern: Pattern, length: int) -> str:
        share = f"{self.share(pattern, length):.0%} of the scores are computed"
        return f"kernel flex: {share}, by FlexAttention on CUDA, elsewhere by the banded kernel"


@dataclass(frozen=True, eq=False)
class FlexPlan(StructuredPlan):
    """The block mask of one batch."""

    block_mask: Any
    function: FlexAttention
    farthest: int  # the largest distance between two positions

    def attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        q_positions: Tensor,
        k_positions: Tensor,
        bias: Bias | None = None,
        dropout: float = 0.0,
    ) -> Tensor:
        if dropout:
            raise refuse_dropout("flex", dropout)
        change = None
        if bias is not None and changes_scores(bias, q, q_positions, k_positions):
            if not is_by_distance(bias):
                raise _refuse_bias()
            change = self._add(bias, q, q_positions, k_positions)
        # as torch's attention does under autocast; a norm of queries gives fp32
        q, k = q.to(v.dtype), k.to(v.dtype)
        return self.function(q, k, v, score_mod=change, block_mask=self.block_mask)

    def _add(self, bias: Bias, q: Tensor, q_positions: Tensor, k_positions: Tensor) -> ScoreMod:
        """A score function that adds `bias` to a score."""
        most, batch = self.farthest, q.shape[0]
        own = q_positions.new_full((1, 1), most)
        others = torch.arange(2 * most + 1, device=q.device)[None]
        made = bias(q[:1, :, :1], own, others)
        assert made is not None
        # contiguous [H, 2 n + 1] and [B, T]
        table = made[0, :, 0].expand(q.shape[1], -1).contiguous()
        places = (q_positions, k_positions + most)  # not a number in the compiled function
        asking, asked = (x.expand(batch, -1).contiguous() for x in places)

        def change(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return score + table[h, asked[b, j] - asking[b, i]]

        return change


def _find_blocks(active: Pattern, seq: Seq) -> tuple[Tensor, Tensor]:
    """The blocks of keys that each block of queries may need, and the blocks that it sees without a
    mask. Both are bool [B | 1, H | 1, N, N].
    """
    groups = group_heads(active)
    heads = sorted((head, number) for number, (group, _) in enumerate(groups) for head in group)
    chosen = [number for _, number in heads] if len(groups) > 1 else [0]
    needed, whole = [], []
    for _, part in groups:
        pattern = part.simplify(seq)
        band, blocks = Band.of(pattern), pattern.blocks(seq, BLOCK)
        needed.append(blocks)
        whole.append(torch.zeros_like(blocks) if band is None else band.whole_blocks(seq, BLOCK))
    rows = max(map(len, (*needed, *whole)))
    both = (torch.stack([x.expand(rows, -1, -1) for x in parts], 1) for parts in (needed, whole))
    needed_of, whole_of = (blocks[:, chosen] for blocks in both)
    return needed_of, whole_of


def _list_blocks(chosen: Tensor) -> tuple[Tensor, Tensor]:
    """[..., N, N] -> how many blocks of keys each block of queries has, and their numbers first."""
    order = chosen.to(torch.uint8).argsort(dim=-1, descending=True, stable=True)
    return chosen.sum(-1, dtype=torch.int32), order.to(torch.int32)


def _refuse_bias() -> ConfigError:
    allowed = "dense or banded: the positions of this model change scores by more than a distance"
    return ConfigError("kernel", "flex", allowed, fix="kernel=auto")
