"""What heads read of a backbone: one layer, or several together (Devlin et al., 2019, sec. 5.3; Peters et al., 2018)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Generator, Tensor, nn

from plmctl.batch import Batch
from plmctl.errors import ConfigError
from plmctl.models.base import Hidden, Model
from plmctl.nn.init import Starting

HIDDEN = frozenset({"hidden"})
BEFORE_HEADS = ("features", "encoder")  # of `Model.heads`: what stands between the backbone and the others, in this order


def read(model: Model, batch: Batch, hidden: Hidden | None = None) -> Tensor:
    """[B, T, W'] what heads see of every token: `heads.features` of all layers (without it the last), then `heads.encoder`.

    `hidden`: the backbone's answer where it is known already; it must have recorded the layers that are mixed.
    """
    mixes = "features" in model.heads
    if hidden is None:
        hidden = model(batch, record=HIDDEN) if mixes else model(batch)
    found = model.heads["features"](hidden.recorded["hidden"]) if mixes else hidden.last
    return model.heads["encoder"](found, batch.text.real) if "encoder" in model.heads else found


class Layers(nn.Module):
    """Picks recorded states: 0 is the embedding output, 1 the first layer, -1 the last; subclasses say what becomes of them.

    `width` turns from that of a layer into that of the features, which is what heads are built with.
    """

    def __init__(self, *, width: int, num_layers: int, layers: Sequence[int]) -> None:
        super().__init__()
        for layer in layers:
            if not -num_layers - 1 <= layer <= num_layers:
                allowed = f"0 (the embedding output) to {num_layers}, or -1 (the last layer) to {-num_layers - 1}"
                raise ConfigError("layers", list(layers), allowed, fix=f"layers=[{','.join(map(str, range(-num_layers, 0)))}]")
        if not layers:
            raise ConfigError("layers", [], "at least one layer")
        self.width, self.layers = width, list(layers)

    def picked(self, hidden: Sequence[Tensor]) -> list[Tensor]:
        """[B, T, W] each, of the L + 1 recorded states."""
        return [hidden[layer] for layer in self.layers]


class Layer(Layers):
    """`h_layer`, [B, T, W]: one layer, for example the second-to-last (Devlin et al., 2019, tab. 7)."""

    def __init__(self, *, width: int, num_layers: int, layer: int) -> None:
        super().__init__(width=width, num_layers=num_layers, layers=[layer])

    def forward(self, hidden: Sequence[Tensor]) -> Tensor:
        return self.picked(hidden)[0]


class Sum(Layers):
    """`sum_j h_j` over `layers`, [B, T, W]."""

    def forward(self, hidden: Sequence[Tensor]) -> Tensor:
        return torch.stack(self.picked(hidden)).sum(0)


class Concat(Layers):
    """`[h_i; h_j; ...]` over `layers`, [B, T, n W]: the best features of BERT (Devlin et al., 2019, tab. 7)."""

    def __init__(self, *, width: int, num_layers: int, layers: Sequence[int]) -> None:
        super().__init__(width=width, num_layers=num_layers, layers=layers)
        self.width = width * len(self.layers)

    def forward(self, hidden: Sequence[Tensor]) -> Tensor:
        return torch.cat(self.picked(hidden), -1)


class Mix(Layers, Starting):
    """`gamma sum_j softmax(s)_j h_j` with learned s and gamma, [B, T, W] (Peters et al., 2018, arXiv:1802.05365, eq. 1).

    s begins at 0, the mean, and gamma at 1. `layers=None`: all layers, without the embedding output.
    """

    def __init__(self, *, width: int, num_layers: int, layers: Sequence[int] | None = None) -> None:
        chosen = range(1, num_layers + 1) if layers is None else layers
        super().__init__(width=width, num_layers=num_layers, layers=chosen)
        self.scores = nn.Parameter(torch.zeros(len(self.layers)))
        self.gamma = nn.Parameter(torch.ones(()))

    def start(self, generator: Generator) -> None:
        nn.init.zeros_(self.scores)
        nn.init.ones_(self.gamma)

    def forward(self, hidden: Sequence[Tensor]) -> Tensor:
        shares = self.gamma * self.scores.softmax(0)
        return sum(share * state for share, state in zip(shares, self.picked(hidden), strict=True))  # type: ignore[return-value]
