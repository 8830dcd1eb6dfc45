"""The kernel that is measured to be the fastest for a pattern and a length."""

from __future__ import annotations

from collections.abc import Hashable

import torch

from plmctl.attention.kernels.banded import Banded
from plmctl.attention.kernels.base import Kernel, KernelPlan
from plmctl.attention.kernels.dense import Dense
from plmctl.attention.patterns.base import Pattern
from plmctl.attention.patterns.key import make_key
from plmctl.core.batch import Seq
from plmctl.core.graphs import outside_graphs
from plmctl.core.parts import part_of

# Leaving out blocks pays in rows of at least so many tokens, if at most this share of the scores
# remains: benchmarks/attention_kernels.py
LEAST, SHARE = 1024, 0.5
_UNMEASURED = (
    "kernel=flex and kernel=varlen are made for this GPU, and not chosen by kernel=auto before they"
    " are measured"
)


@part_of("kernel")
class Auto(Kernel):
    """`banded` in rows of `LEAST` tokens or more if the pattern leaves out half of the scores,
    otherwise `dense`.

    The pattern is judged in a full row of one document: the choice depends on the settings and the
    length of a row, not on its content. It is the same on CPU and GPU: `flex` and `varlen` are not
    measured yet, and only chosen by name.
    """

    def __init__(self) -> None:
        self.dense, self.banded = Dense(), Banded()
        self._shares: dict[Hashable, float] = {}

    def plan(self, pattern: Pattern, seq: Seq, *, start: int = 0) -> KernelPlan:
        return self.choose(pattern, seq.ids.shape[1]).plan(pattern, seq, start=start)

    def choose(self, pattern: Pattern, length: int) -> Kernel:
        """Choose the kernel for rows of `length` tokens."""
        return self.dense if length < LEAST else self._by_share(pattern, length)

    @outside_graphs
    def _by_share(self, pattern: Pattern, length: int) -> Kernel:
        key = (make_key(pattern), length)
        if key not in self._shares:
            self._shares[key] = self.banded.share(pattern, length)
        return self.banded if self._shares[key] <= SHARE else self.dense

    def share(self, pattern: Pattern, length: int) -> float:
        return self.choose(pattern, length).share(pattern, length)

    def remark(self, pattern: Pattern, length: int) -> str:
        kernel, share = self.choose(pattern, length), self.banded.share(pattern, length)
        if share > SHARE:
            return ""
        if kernel is self.banded:
            why = f"kernel=auto: at most half, in rows of {LEAST:,} tokens or more"
            told = f"{kernel.remark(pattern, length)} ({why})"
        else:
            told = (
                f"kernel dense: all pairs are computed, under a mask; in rows of {LEAST:,} tokens"
                " or more the keys out of reach are left out (kernel=banded: in all rows)"
            )
        return f"{told}; {_UNMEASURED}" if torch.cuda.is_available() else told
