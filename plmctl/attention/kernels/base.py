"""The interface of kernels: ways to compute attention, all with the same result."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeVar

from torch import Tensor

from plmctl.attention.patterns.base import Pattern
from plmctl.core.batch import Seq
from plmctl.core.errors import ConfigError
from plmctl.core.parts import base_of

# (queries [B, H, Tq, D], their positions [B | 1, Tq], those of keys [B | 1, Tk]) -> the bias that
# is added to the scaled scores, [B | 1, H | 1, Tq, Tk], or None. A kernel may call it for parts of
# rows.
Bias = Callable[[Tensor, Tensor, Tensor], Tensor | None]
Added = TypeVar("Added", bound=Callable[..., "Tensor | None"])
# scores [B, H, Tq, Tk], -inf where a query may not see -> weights, 0 there (nn/weights.py)
Weigh = Callable[[Tensor], Tensor]


def by_distance(bias: Added) -> Added:
    """Mark a `Bias` that depends on the head and on `k_positions - q_positions` alone."""
    bias.by_distance = True  # type: ignore[attr-defined]
    return bias


def is_by_distance(bias: Bias) -> bool:
    """Whether it is marked so."""
    return getattr(bias, "by_distance", False)


def refuse_dropout(kernel: str, rate: float) -> ConfigError:
    """The error of dropout on probabilities with a kernel that has none."""
    allowed = f"0 with kernel={kernel}, which has no dropout on probabilities"
    return ConfigError("dropout", rate, allowed, fix="kernel=auto")


def changes_scores(bias: Bias | None, q: Tensor, q_positions: Tensor, k_positions: Tensor) -> bool:
    """Whether `bias` adds anything: it is called with a single query and key."""
    one = (q[:1, :, :1], q_positions[:1, :1], k_positions[:1, :1])
    return bias is not None and bias(*one) is not None


class KernelPlan(ABC):
    """The data that a kernel has computed from the pattern for one batch; all layers of a model use
    it.
    """

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
        gives 0.

        Args:
            q: [B, H, Tq, D]
            k: [B, H, Tk, D]
            v: [B, H, Tk, D]
            q_positions: [B | 1, Tq] integers that `bias` receives.
            k_positions: [B | 1, Tk]
            bias: The function whose values are added to the scores.
            dropout: The rate, on probabilities.

        Returns:
            [B, H, Tq, D]
        """

    @abstractmethod
    def hidden(self, like: Tensor) -> Tensor | None:
        """[B | 1, H | 1, Tq, Tk] bool, True where a query may not see; None: nowhere.

        For recorders of complete attention maps; `like [..., Tq, Tk]` has their size.
        """


@base_of("kernel")
class Kernel(ABC):
    """A way to compute attention; a model makes one plan for each batch."""

    # whether the backward pass needs all scores that it computes
    stores_scores: bool = True
    least_head_width: int = 1  # columns of a head that it can compute

    @abstractmethod
    def plan(self, pattern: Pattern, seq: Seq, *, start: int = 0) -> KernelPlan:
        """Prepare a batch for all layers; the queries are the tokens from `start` on, the keys all
        tokens.
        """

    def settle(self, *, bias: Bias | None, dropout: float, head_width: int) -> Kernel:
        """The kernel for layers with the position bias `bias`, this rate of dropout on
        probabilities and heads of at least so many columns. By default it is the kernel itself; a
        kernel that chooses among others returns its choice.
        """
        return self

    def problem(
        self, pattern: Pattern, length: int, *, bias: Bias | None, dropout: float
    ) -> ConfigError | None:
        """The reason why the kernel cannot train a layer with this pattern; None if it can.

        Args:
            length: Tokens of the longest row.
            bias: The function of positions that is added to scores.
            dropout: The rate, on probabilities.
        """
        return None

    def share(self, pattern: Pattern, length: int) -> float:
        """The share of the `length * length` scores of a full row that it computes."""
        return 1.0

    def remark(self, pattern: Pattern, length: int) -> str:
        """A line for the user about this choice for rows of up to `length` tokens, or ""."""
        return ""
