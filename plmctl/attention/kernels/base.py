"""What every kernel is: a way to compute attention, with the answer of every other kernel."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from torch import Tensor

from plmctl.attention.patterns.base import Pattern
from plmctl.core.batch import Seq
from plmctl.core.parts import base_of

# (queries [B, H, Tq, D], their positions [B | 1, Tq], those of keys [B | 1, Tk]) -> what is added
# to the scaled scores, [B | 1, H | 1, Tq, Tk], or None. A kernel may ask for pieces of rows.
Bias = Callable[[Tensor, Tensor, Tensor], Tensor | None]


class KernelPlan(ABC):
    """What a kernel has worked out for one batch, used by all layers of a model."""

    @abstractmethod
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
        """`dropout(softmax(q k^T / sqrt(D) + bias, where allowed)) v`; a query that may see nothing
        yields 0.

        Args:
            q: [B, H, Tq, D]
            k: [B, H, Tk, D]
            v: [B, H, Tk, D]
            q_positions: [B | 1, Tq] integers that `bias` is given.
            k_positions: [B | 1, Tk]
            bias: What is added to the scores.
            dropout: The rate, on probabilities.

        Returns:
            [B, H, Tq, D]
        """

    @abstractmethod
    def hidden(self, like: Tensor) -> Tensor | None:
        """[B | 1, H | 1, Tq, Tk] bool, True where a query may not see; None: nowhere.

        For those who look at whole maps of attention; `like [..., Tq, Tk]` has their size.
        """


@base_of("kernel")
class Kernel(ABC):
    """A way to compute attention; a model makes one plan for each batch."""

    @abstractmethod
    def plan(self, pattern: Pattern, seq: Seq, *, start: int = 0) -> KernelPlan:
        """What all layers share; the queries are the tokens from `start` on, the keys all."""

    def share(self, pattern: Pattern, length: int) -> float:
        """Which share of the `length * length` scores of a full row it computes."""
        return 1.0

    def remark(self, pattern: Pattern, length: int) -> str:
        """What one should know of this choice for rows of up to `length` tokens, or ""."""
        return ""
