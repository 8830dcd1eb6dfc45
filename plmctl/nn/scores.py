"""Scores of queries and keys: the three products of Luong et al. (2015) and Vaswani et al.
(2017).
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from plmctl.core.errors import ConfigError, nearest


class Dot(nn.Module):
    """`q . k` (Luong et al., 2015, arXiv:1508.04025, sec. 3.1, "dot"); undoes the kernel's 1 /
    sqrt(D).
    """

    def __init__(self, *, num_heads: int, head_width: int) -> None:
        super().__init__()
        self.factor = head_width**0.5

    def forward(self, q: Tensor) -> Tensor:
        return q * self.factor


class General(nn.Module):
    """`q^T W_h k`, one matrix [D, D] for each head (Luong et al., 2015, arXiv:1508.04025, sec. 3.1,
    "general").

    Row h D + i of `between.weight [H D, D]` is row i of W_h.
    """

    def __init__(self, *, num_heads: int, head_width: int) -> None:
        super().__init__()
        self.num_heads, self.factor = num_heads, head_width**0.5
        self.between = nn.Linear(head_width, num_heads * head_width, bias=False)

    def forward(self, q: Tensor) -> Tensor:
        return (q * self.factor) @ self.between.weight.unflatten(0, (self.num_heads, -1)).to(
            q.dtype
        )


SCORES: dict[str, Callable[..., nn.Module]] = {
    # q . k / sqrt(D) (Vaswani et al., 2017, arXiv:1706.03762, sec. 3.2.1), what the kernels compute
    "scaled": nn.Identity,
    "dot": Dot,
    "general": General,
}


def make_score(name: str, *, num_heads: int, head_width: int) -> nn.Module:
    """The module that queries [B, H, T, D] pass before a kernel multiplies them with keys; a
    ConfigError names the nearest one.
    """
    if name not in SCORES:
        raise ConfigError("scores", name, f"one of {', '.join(SCORES)}{nearest(name, SCORES)}")
    return SCORES[name](num_heads=num_heads, head_width=head_width)
