"""FlexAttention on CUDA: one compiled kernel that skips blocks and keeps no scores.

The block mask is made once for a batch, from the blocks that the pattern itself says may be needed;
for static patterns it is cached. (Dong et al., 2024, arXiv:2412.05496; torch.nn.attention.
flex_attention of torch 2.11 to 2.13.)
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from plmctl.attention.kernels.banded import Banded
from plmctl.attention.kernels.base import Bias, Kernel, KernelPlan
from plmctl.attention.kernels.dense import Mask
from plmctl.attention.patterns.base import Pattern, make_key
from plmctl.core.batch import Seq
from plmctl.core.errors import ConfigError
from plmctl.core.graphs import outside_graphs
from plmctl.core.parts import part_of

BLOCK = 128  # tokens; FlexAttention's own
_KEPT = 256  # block masks of static patterns, one for each that a layer has

FlexAttention = Callable[..., Tensor]


@functools.cache
def compile_flex() -> FlexAttention:
    """`flex_attention`, compiled once for all models; without compilation it stores all scores."""
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention)


@part_of("kernel")
class Flex(Kernel):
    """FlexAttention on CUDA, the banded kernel elsewhere: without dropout on probabilities and
    without position biases, which the dense and the banded kernel support.
    """

    def __init__(self) -> None:
        self.elsewhere = Banded(block=BLOCK)
        self._masks: OrderedDict[Hashable, Any] = OrderedDict()

    @outside_graphs  # works on the values of tensors
    def plan(self, pattern: Pattern, seq: Seq, *, start: int = 0) -> KernelPlan:
        if start:  # only the new tokens of a growing text: few queries
            return Mask.of(pattern, seq, k_offset=start)
        if seq.ids.device.type != "cuda":
            return self.elsewhere.plan(pattern, seq)
        return FlexPlan(pattern, seq, self.block_mask(pattern, seq), compile_flex())

    def block_mask(self, pattern: Pattern, seq: Seq) -> Any:
        """FlexAttention's BlockMask of the pattern in this batch; None: everything is allowed."""
        from torch.nn.attention.flex_attention import BlockMask

        active = pattern.simplify(seq)
        length, static = seq.ids.shape[1], active.static
        key = (make_key(active), length, seq.ids.device)
        if static and key in self._masks:
            return self._masks[key]
        needed = active.blocks(seq, BLOCK)[:, None].to(torch.int32)  # [B | 1, 1, N, N]
        indices = needed.argsort(dim=-1, descending=True, stable=True).to(torch.int32)
        mask = BlockMask.from_kv_blocks(
            needed.sum(-1, dtype=torch.int32),
            indices,
            BLOCK_SIZE=BLOCK,
            mask_mod=active.bind(seq),
            seq_lengths=(length, length),
        )
        if static:
            self._masks[key] = mask
            if len(self._masks) > _KEPT:
                self._masks.popitem(last=False)
        return mask

    def share(self, pattern: Pattern, length: int) -> float:
        row = pattern.row(torch.zeros(length, dtype=torch.long, device="cpu"))
        needed = pattern.simplify(row).blocks(row, BLOCK)
        return min(1.0, float(needed.sum()) * BLOCK**2 / length**2)

    def remark(self, pattern: Pattern, length: int) -> str:
        share = f"{self.share(pattern, length):.0%} of the scores are computed"
        return f"kernel flex: {share}, by FlexAttention on CUDA, elsewhere by the banded kernel"


@dataclass(frozen=True, eq=False)
class FlexPlan(KernelPlan):
    """The block mask of one batch."""

    pattern: Pattern
    seq: Seq
    block_mask: Any
    function: FlexAttention

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
            raise ConfigError(
                "dropout",
                dropout,
                "0 with kernel=flex, which has no dropout on probabilities",
                fix="kernel=auto",
            )
        # a single query and key tell whether scores are changed at all
        one = (q[:1, :, :1], q_positions[:1, :1], k_positions[:1, :1])
        if bias is not None and bias(*one) is not None:
            raise ConfigError(
                "kernel",
                "flex",
                "dense or banded: the positions of this model change scores",
                fix="kernel=auto",
            )
        return self.function(q, k, v, block_mask=self.block_mask)

    def hidden(self, like: Tensor) -> Tensor | None:
        return Mask.of(self.pattern, self.seq).hidden(like)
