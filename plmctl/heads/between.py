"""States of a language model between the two recurrent layers of a tagger (TagLM)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from plmctl.core.parts import part_of
from plmctl.core.values import Count, DropoutRate
from plmctl.heads.encoders import BiLSTM
from plmctl.heads.features import Layer
from plmctl.nn.dropout import Dropout


@part_of("heads")
class Between(nn.Module):
    """`BiLSTM(dropout([h; h_LM]))`: h is what the encoder before the head gives, the first layer of
    the tagger, h_LM a layer of the backbone (Peters et al., 2017, arXiv:1705.00108, sec. 2: states
    of the language model at the output of the first layer).

    features [B, T, W'] and L + 1 states [B, T, W] -> [B, T, 2 hidden_width].

    Args:
        layer: The layer of the backbone; -1: the last, both directions of a biLM side by side.
        hidden_width: The width of each direction of the second layer.
    """

    # {the head that stands before it: what puts it there}
    after: ClassVar[Mapping[str, str]] = {
        "encoder": "head_encoder=bilstm heads.encoder.num_layers=1"
    }

    def __init__(
        self,
        *,
        width: int,
        state_width: int,
        num_layers: int,
        layer: int = -1,
        hidden_width: Count,
        dropout: DropoutRate = 0.0,
    ) -> None:
        super().__init__()
        self.states = Layer(width=state_width, num_layers=num_layers, layer=layer)
        self.second = BiLSTM(
            width=width + state_width, hidden_width=hidden_width, num_layers=1, dropout=0.0
        )
        self.dropout, self.width = Dropout(rate=dropout), self.second.width

    def forward(self, features: Tensor, hidden: Sequence[Tensor], real: Tensor) -> Tensor:
        both = torch.cat([features, self.states(hidden).to(features.dtype)], -1)
        read: Tensor = self.second(self.dropout(both), real)
        return read
