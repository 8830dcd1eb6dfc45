"""A feed-forward cell of two separable convolutions (Dehghani et al., 2019, arXiv:1807.03819, sec.
2.1).
"""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from plmctl.core.parts import part_of
from plmctl.core.values import DropoutRate
from plmctl.nn.cells.base import Cell, CellFacts
from plmctl.nn.cells.convolution import SeparableConvolution
from plmctl.nn.dropout import Dropout
from plmctl.nn.env import Env, Streams


@part_of("cells")
class SeparableFeedForward(Cell):
    """`down(dropout(activation(up(x))))`, [B, T, W] -> [B, T, W] through `inner_width`: the
    transition of the Universal Transformer that reads neighbours.

    `up` and `down` are separable convolutions of `kernel` and `last_kernel` tokens. `causal`:
    windows end at the token; otherwise it stands in their middle.
    Source: tensor2tensor, universal_transformer_util.py, transformer_encoder_ffn_unit.
    """

    projected_by = "down.projection"
    facts = CellFacts(computes="convolution")

    def __init__(
        self,
        *,
        width: int,
        inner_width: int,
        causal: bool,
        kernel: int = 3,
        last_kernel: int = 5,
        activation: str = "relu",
        dropout: DropoutRate = 0.0,
    ) -> None:
        super().__init__()
        self.facts = replace(self.facts, ahead=not causal)
        self.up = SeparableConvolution(
            width=width, kernel=kernel, causal=causal, outputs=inner_width, activation=activation
        )
        self.down = SeparableConvolution(
            width=inner_width, kernel=last_kernel, causal=causal, outputs=width
        )
        self.dropout = Dropout(rate=dropout)

    def forward(self, streams: Streams, env: Env) -> Tensor:
        inner = self.dropout(self.up(streams, env.enter("up")))
        return self.down(streams.replace("text", inner), env.enter("down"))
