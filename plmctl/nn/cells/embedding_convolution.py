"""A convolution of the embeddings behind the first layer (DeBERTa 2)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.core.values import Count, DropoutRate
from plmctl.nn.cells.base import Cell, CellFacts, RowSize, Work
from plmctl.nn.cells.feedforward import find_activation
from plmctl.nn.dropout import Dropout
from plmctl.nn.env import Env, Streams
from plmctl.nn.window import TokenWindow


@part_of("cells")
class EmbeddingConvolution(Cell):
    """`norm(x + activation(dropout(conv(e))))`, e the embeddings of the tokens: n-grams of `kernel`
    tokens (microsoft/DeBERTa, deberta.py, ConvLayer; DeBERTa 2).

    [B, T, W] -> [B, T, W]. The embeddings are the stream `embedded`. Beyond the ends of a document
    are zeros. Norm and sum are inside, so the block around it is bare. `conv.weight` is [W, W /
    groups, kernel].
    """

    projected_by = "conv"
    facts = CellFacts(
        computes="convolution",
        reads=frozenset({"text", "embedded"}),
        complete=True,
        ahead=True,
        cached=False,
    )

    def __init__(
        self,
        *,
        width: int,
        kernel: Count = 3,
        groups: Count = 1,
        activation: str = "gelu",
        dropout: DropoutRate,
        eps: float = 1e-7,
    ) -> None:
        super().__init__()
        if kernel % 2 == 0:
            raise ConfigError("kernel", kernel, "an odd number: the token stands in the middle")
        if width % groups:
            raise ConfigError("groups", groups, f"a divisor of size.width={width}")
        self.window = TokenWindow(kernel, False)
        self.conv = nn.Conv1d(width, width, kernel, groups=groups)
        self.activation, self.dropout = find_activation(activation), Dropout(rate=dropout)
        self.norm = nn.LayerNorm(width, eps=eps)

    def work(self, row: RowSize) -> Work:
        rows, numbers = (1 + row.queries) * row.tokens, self.conv.weight.numel()
        return Work(rows * numbers, kept=rows * self.conv.out_channels)

    def forward(self, streams: Streams, env: Env) -> Tensor:
        x = streams["text"]
        embedded, documents = self.window.surround(streams["embedded"], env.documents, env.slot)
        taps = torch.stack(self.window.taps(embedded, documents), -1)  # [B, T, W, kernel]
        groups, weight = self.conv.groups, self.conv.weight
        # [B, T, G, W / G * kernel] and [G, W / G, W / G * kernel]
        parts = taps.unflatten(2, (groups, -1)).flatten(3)
        maps = weight.unflatten(0, (groups, -1)).flatten(2).to(parts.dtype)
        y = torch.einsum("btgi,goi->btgo", parts, maps).flatten(2)
        y = y if self.conv.bias is None else y + self.conv.bias
        return self.norm(x + self.activation(self.dropout(y)))
