"""Multi-head self-attention (Vaswani et al., 2017, arXiv:1706.03762, sec. 3.2)."""

from __future__ import annotations

from torch import Tensor, nn

from plmctl.attention.kernels import attend
from plmctl.errors import ConfigError
from plmctl.nn.cells.base import Cell, Context


class Attention(Cell):
    """`out(softmax(q k^T / sqrt(D)) v)` with q, k, v from one fused linear map `qkv` and dropout on the probabilities.

    [B, T, W] -> [B, T, W]. The rows of `qkv.weight [3 H D, W]` are all of q, then k, then v, each ordered (head, D). With
    `scaled=False` scores are not divided by sqrt(D) (Raffel et al., 2020, T5).
    """

    def __init__(
        self, *, width: int, num_heads: int, dropout: float, head_width: int | None = None, bias: bool = True,
        scaled: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        if head_width is None and width % num_heads:
            raise ConfigError("size.num_heads", num_heads, f"must divide size.width={width}", fix="or set head_width")
        self.num_heads, self.head_width, self.dropout = num_heads, head_width or width // num_heads, dropout
        self.factor = 1.0 if scaled else self.head_width**0.5
        self.qkv = nn.Linear(width, 3 * num_heads * self.head_width, bias=bias)
        self.out = nn.Linear(num_heads * self.head_width, width, bias=bias)

    @property
    def projection(self) -> nn.Linear:  # type: ignore[override]
        return self.out

    def forward(self, x: Tensor, context: Context) -> Tensor:
        qkv = self.qkv(x).unflatten(-1, (3, self.num_heads, self.head_width))  # [B, T, 3, H, D]
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)  # [B, H, T, D] each
        position, places = context.position, context.places
        q, k = position.rotate(q if self.factor == 1.0 else q * self.factor, k, places, places)
        if context.slot is not None:
            k, v = context.slot.extended(k, v)
        bias = position.bias(q, places, context.key_places)
        y = attend(q, k, v, mask=context.mask, bias=bias, dropout=self.dropout if self.training else 0.0)
        return self.out(y.transpose(1, 2).flatten(2))
