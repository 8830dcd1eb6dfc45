"""Encoders between features and a head: "+ BiLSTM" (Devlin et al., 2019, tab. 5 and sec. 5.3),
its GRU and CNN relatives.
"""

from __future__ import annotations

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.core.values import DropoutRate
from plmctl.nn.dropout import Dropout
from plmctl.nn.starting import Starting


class Recurrent(Starting):
    """A network of `kind` that reads every row in both directions, [B, T, W], real [B, T] -> [B, T,
    2 hidden_width].

    Only real tokens are read, so that the backward direction begins at a row's last token; padding
    gets zeros. Computed in the type of the weights, without autocast. First weights: U(-k, k), k =
    hidden_width^-1/2, torch's own.
    """

    kind: type[nn.LSTM | nn.GRU]

    def __init__(
        self, *, width: int, hidden_width: int, num_layers: int, dropout: DropoutRate
    ) -> None:
        super().__init__()
        self.width = 2 * hidden_width
        between = dropout if num_layers > 1 else 0.0
        self.layers = self.kind(
            width, hidden_width, num_layers, batch_first=True, dropout=between, bidirectional=True
        )

    def start(self, generator: Generator) -> None:
        bound = self.layers.hidden_size**-0.5
        for parameter in self.layers.parameters():
            nn.init.uniform_(parameter, -bound, bound, generator=generator)

    def forward(self, features: Tensor, real: Tensor) -> Tensor:
        # real tokens first, as packing wants them
        order = (~real).byte().argsort(dim=1, stable=True)[..., None]
        length = real.sum(1)
        with torch.autocast(features.device.type, enabled=False):
            gathered = features.to(next(self.layers.parameters()).dtype).gather(
                1, order.expand_as(features)
            )
            packed = pack_padded_sequence(
                gathered, length.clamp(min=1).cpu(), batch_first=True, enforce_sorted=False
            )
            states, _ = pad_packed_sequence(
                self.layers(packed)[0], batch_first=True, total_length=real.shape[1]
            )
        states = torch.zeros_like(states).scatter(1, order.expand_as(states), states)
        return states * real[..., None]


@part_of("heads")
class BiLSTM(Recurrent):
    """`[forward LSTM; backward LSTM]`, layer by layer (Hochreiter and Schmidhuber, 1997; Graves
    and Schmidhuber, 2005).
    """

    kind = nn.LSTM


@part_of("heads")
class BiGRU(Recurrent):
    """`[forward GRU; backward GRU]`, layer by layer (Cho et al., 2014, arXiv:1406.1078)."""

    kind = nn.GRU


@part_of("heads")
class CNN(nn.Module):
    """`x <- relu(sum_k W_k dropout(x)_{t+k} + b)`, |k| <= kernel // 2, layer by layer, [B, T, W] ->
    [B, T, hidden_width].

    Zeros stand beyond a row's ends, and where there is padding (Collobert et al., 2011,
    arXiv:1103.0398, sec. 3.2.2).
    """

    def __init__(
        self, *, width: int, hidden_width: int, num_layers: int, kernel: int, dropout: DropoutRate
    ) -> None:
        super().__init__()
        if kernel % 2 == 0:
            raise ConfigError(
                "kernel", kernel, "an odd number, so that a token stands in the middle"
            )
        self.width = hidden_width
        self.layers = nn.ModuleList(
            nn.Conv1d(hidden_width if layer else width, hidden_width, kernel, padding=kernel // 2)
            for layer in range(num_layers)
        )
        self.dropout = Dropout(rate=dropout)

    def forward(self, features: Tensor, real: Tensor) -> Tensor:
        x, keep = features.transpose(1, 2), real[:, None]
        for layer in self.layers:
            x = F.relu(layer(self.dropout(x) * keep))
        return (x * keep).transpose(1, 2)
