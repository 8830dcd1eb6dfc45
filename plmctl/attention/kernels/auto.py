"""The kernel that is measured to be the fastest for a pattern and a length."""

from __future__ import annotations

from collections.abc import Hashable

import torch

from plmctl.attention.kernels.banded import Banded
from plmctl.attention.kernels.base import Bias, Kernel, KernelPlan
from plmctl.attention.kernels.dense import Dense
from plmctl.attention.kernels.flex import Flex
from plmctl.attention.patterns.base import Full, Pattern
from plmctl.attention.patterns.key import make_key
from plmctl.core.batch import Seq
from plmctl.core.graphs import can_compile_for_gpu, outside_graphs
from plmctl.core.parts import part_of

# Leaving out blocks pays in rows of at least so many tokens, if at most this share of the scores
# remains: benchmarks/attention_kernels.py
LEAST, SHARE = 1024, 0.5


@part_of("kernel")
class Auto(Kernel):
    """In rows of `LEAST` tokens or more, if the pattern leaves out half of the scores, `flex` on a
    GPU and `banded` elsewhere; otherwise `dense`.

    The pattern is judged in a full row of one document. The choice therefore depends on the
    settings and the length of a row, not on its content. `flex` is chosen if it can be compiled and
    can train the layers of the model (`settle`); otherwise `banded` is chosen. A window of 513
    tokens in 8,192, bf16, H200, forward and backward: dense 5.7 ms, banded 2.6, varlen 0.9, flex
    0.8.
    """

    def __init__(self) -> None:
        self.dense, self.banded = Dense(), Banded()
        self.flex: Flex | None = None
        self._shares: dict[Hashable, float] = {}

    def settle(self, *, bias: Bias | None, dropout: float, head_width: int) -> Auto:
        made, flex = Auto(), Flex()
        problem = flex.problem(Full(), LEAST, bias=bias, dropout=dropout)
        if problem is None and head_width >= flex.least_head_width and can_compile_for_gpu():
            made.flex = flex
        return made

    def plan(self, pattern: Pattern, seq: Seq, *, start: int = 0) -> KernelPlan:
        kernel = self.choose(pattern, seq.ids.shape[1], seq.ids.device.type)
        return kernel.plan(pattern, seq, start=start)

    def choose(self, pattern: Pattern, length: int, device: str = "cpu") -> Kernel:
        """Choose the kernel for rows of `length` tokens."""
        return self.dense if length < LEAST else self._by_share(pattern, length, device)

    @outside_graphs
    def _by_share(self, pattern: Pattern, length: int, device: str) -> Kernel:
        key = (make_key(pattern), length)
        if key not in self._shares:
            self._shares[key] = self.banded.share(pattern, length)
        if self._shares[key] > SHARE:
            return self.dense
        return self.flex if self.flex and device in self.flex.devices else self.banded

    def share(self, pattern: Pattern, length: int) -> float:
        return self.choose(pattern, length).share(pattern, length)

    def remark(self, pattern: Pattern, length: int) -> str:
        if self.banded.share(pattern, length) > SHARE:
            return ""
        kernel = self.choose(pattern, length, "cuda" if torch.cuda.is_available() else "cpu")
        if kernel is not self.dense:
            why = f"kernel=auto: at most half, in rows of {LEAST:,} tokens or more"
            why += "; on the CPU banded" if kernel is self.flex else ""
            return f"{kernel.remark(pattern, length)} ({why})"
        return (
            f"kernel dense: all pairs are computed, under a mask; in rows of {LEAST:,} tokens"
            " or more the keys out of reach are left out (kernel=banded: in all rows)"
        )
