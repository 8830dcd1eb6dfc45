"""The input of heads from a backbone: one layer, or several together (Devlin et al., 2019, sec.
5.3; Peters et al., 2018).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Generator, Tensor, nn

from plmctl.core.batch import Batch
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.core.values import DropoutRate
from plmctl.models.base import Hidden, Model
from plmctl.nn.dropout import Dropout
from plmctl.nn.restrained import Restrained
from plmctl.nn.starting import Starting

HIDDEN = frozenset({"hidden"})
# entries of `Model.heads` that precede the others, in this order
BEFORE_HEADS = ("features", "encoder", "output")


def read(model: Model, batch: Batch, hidden: Hidden | None = None) -> Tensor:
    """[B, T, W'] the input of heads for every token: `heads.features` of all layers (without it the
    last), then `heads.encoder`. `heads.output` of all layers is joined to it.

    `hidden`: the output of the backbone if it is known already; without the layers that are read,
    the backbone reads the batch again.
    """
    records = list_records(model)
    if hidden is None or not hidden.recorded.keys() >= {*records.values()}:
        hidden = model(batch, record=frozenset(records.values())) if records else model(batch)
    states, real, features = hidden.recorded, batch.text.real, hidden.last
    if "features" in records:
        features = model.heads["features"](states[records["features"]], real)
    features = model.heads["encoder"](features, real) if "encoder" in model.heads else features
    if "output" not in records:
        return features
    return model.heads["output"](features, states[records["output"]], real)


def list_records(model: Model) -> dict[str, str]:
    """The names of the recorded states by the entry before the heads; without any, heads read the
    last states.
    """
    return {
        name: getattr(model.heads[name], "record", "hidden")
        for name in ("features", "output")
        if name in model.heads
    }


class Layers(nn.Module):
    """Picks recorded states: 0 is the embedding output, 1 the first layer, -1 the last; subclasses
    say what becomes of them.

    `width` is first that of a layer; it becomes that of the features, which heads are built with.
    `record`: the name of these states.
    """

    record: ClassVar[str] = "hidden"

    def __init__(self, *, width: int, num_layers: int, layers: Sequence[int]) -> None:
        super().__init__()
        for layer in layers:
            if not -num_layers - 1 <= layer <= num_layers:
                allowed = (
                    f"0 (the embedding output) to {num_layers},"
                    f" or -1 (the last layer) to {-num_layers - 1}"
                )
                fix = f"layers=[{','.join(map(str, range(-num_layers, 0)))}]"
                raise ConfigError("layers", list(layers), allowed, fix=fix)
        if not layers:
            raise ConfigError("layers", [], "at least one layer")
        self.width, self.layers = width, list(layers)

    def pick(self, hidden: Sequence[Tensor]) -> list[Tensor]:
        """The states [B, T, W] of `layers`, out of the L + 1 recorded ones."""
        return [hidden[layer] for layer in self.layers]


@part_of("heads")
class Layer(Layers):
    """`h_layer`, [B, T, W]: one layer, for example the second-to-last (Devlin et al., 2019, tab.
    7).
    """

    def __init__(self, *, width: int, num_layers: int, layer: int) -> None:
        super().__init__(width=width, num_layers=num_layers, layers=[layer])

    def forward(self, hidden: Sequence[Tensor], real: Tensor | None = None) -> Tensor:
        return self.pick(hidden)[0]


@part_of("heads")
class EncoderStates(Layers):
    """The last states of the encoder of an encoder-decoder, [B, T, W]: each has read its token and
    the whole text (`T5EncoderModel` of transformers).

    The decoder reads a token one position later: its state at t has read the tokens before t, and
    the rest through the encoder (Lewis et al., 2020, arXiv:1910.13461, sec. 3.1). Where no other
    head reads the decoder, it does not run.
    """

    record = "encoder"

    def __init__(self, *, width: int, num_layers: int) -> None:
        super().__init__(width=width, num_layers=num_layers, layers=[-1])

    def forward(self, hidden: Sequence[Tensor], real: Tensor | None = None) -> Tensor:
        return self.pick(hidden)[0]


@part_of("heads")
class Sum(Layers):
    """`sum_j h_j` over `layers`, [B, T, W]."""

    def forward(self, hidden: Sequence[Tensor], real: Tensor | None = None) -> Tensor:
        return torch.stack(self.pick(hidden)).sum(0)


@part_of("heads")
class Concat(Layers):
    """`[h_i; h_j; ...]` over `layers`, [B, T, n W]: the best features of BERT (Devlin et al.,
    2019, tab. 7).
    """

    def __init__(self, *, width: int, num_layers: int, layers: Sequence[int]) -> None:
        super().__init__(width=width, num_layers=num_layers, layers=layers)
        self.width = width * len(self.layers)

    def forward(self, hidden: Sequence[Tensor], real: Tensor | None = None) -> Tensor:
        return torch.cat(self.pick(hidden), -1)


@part_of("heads")
class ScalarMix(Layers, Starting, Restrained):
    """`gamma sum_j softmax(s)_j h_j` with learned s and gamma, [B, T, W] (Peters et al., 2018,
    arXiv:1802.05365, eq. 1).

    s begins at 0, the mean, and gamma at 1. `layers=None`: all layers, without the embedding
    output. With `norm` each h_j is `(h_j - m) / sqrt(v)` first, m and v the mean and variance of
    all its numbers in the batch, padding left out. They belong to a layer, not to a token, so they
    depend on the other rows of the batch (sec. 3.2; allenai/bilm-tf elmo.py). `penalty`: lambda of
    `lambda |s|^2`, added to the loss: 1 keeps s near the mean, 0.001 leaves it free (sec. 3.3,
    5.1). `dropout`: of the result.
    """

    def __init__(
        self,
        *,
        width: int,
        num_layers: int,
        layers: Sequence[int] | None = None,
        norm: bool = False,
        penalty: float = 0.0,
        dropout: DropoutRate = 0.0,
    ) -> None:
        mixed = range(1, num_layers + 1) if layers is None else layers
        super().__init__(width=width, num_layers=num_layers, layers=mixed)
        if not 0 <= penalty < math.inf:
            allowed = "0 (none) or a weight above it"
            raise ConfigError("penalty", penalty, allowed, fix="penalty=0.001, as published")
        self.scores = nn.Parameter(torch.zeros(len(self.layers)))
        self.gamma = nn.Parameter(torch.ones(()))
        self.norm, self.strength, self.dropout = norm, penalty, Dropout(rate=dropout)

    def start(self, generator: Generator) -> None:
        nn.init.zeros_(self.scores)
        nn.init.ones_(self.gamma)

    def penalty(self, noted: Sequence[Tensor] = ()) -> Tensor:
        """[] `lambda sum_j s_j^2`."""
        return self.strength * self.scores.square().sum()

    def forward(self, hidden: Sequence[Tensor], real: Tensor | None = None) -> Tensor:
        shares, states = self.gamma * self.scores.softmax(0), self.pick(hidden)
        states = [_normalize(state, real) for state in states] if self.norm else states
        mixed = sum(share * state for share, state in zip(shares, states, strict=True))
        return self.dropout(mixed)  # type: ignore[no-any-return]


@part_of("heads")
class Beside(nn.Module):
    """`[h; mix]`: the output of the encoder before the head, and a `ScalarMix` of layers with
    weights of its own.

    features [B, T, W'] and L + 1 states [B, T, W] -> [B, T, W' + W] (Peters et al., 2018,
    arXiv:1802.05365, sec. 3.3, "at the output of the task RNN").
    """

    def __init__(
        self,
        *,
        width: int,
        state_width: int,
        num_layers: int,
        layers: Sequence[int] | None = None,
        norm: bool = False,
        penalty: float = 0.0,
        dropout: DropoutRate = 0.0,
    ) -> None:
        super().__init__()
        self.mix = ScalarMix(
            width=state_width,
            num_layers=num_layers,
            layers=layers,
            norm=norm,
            penalty=penalty,
            dropout=dropout,
        )
        self.width = width + state_width

    def forward(
        self, features: Tensor, hidden: Sequence[Tensor], real: Tensor | None = None
    ) -> Tensor:
        return torch.cat([features, self.mix(hidden, real)], -1)


def _normalize(state: Tensor, real: Tensor | None) -> Tensor:
    """[B, T, W] with mean 0 and variance 1 over all numbers of its real tokens."""
    state = state.float() if state.dtype in (torch.bfloat16, torch.float16) else state
    mask = torch.ones_like(state[..., :1]) if real is None else real[..., None].to(state.dtype)
    count = mask.sum() * state.shape[-1]
    mean = (state * mask).sum() / count
    variance = ((state - mean).square() * mask).sum() / count
    return (state - mean) * (variance + 1e-12).rsqrt()
