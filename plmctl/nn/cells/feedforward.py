"""The position-wise feed-forward cell (Vaswani et al., 2017, arXiv:1706.03762, sec. 3.3)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import Tensor, nn
from torch.nn import functional as F

from plmctl.core.errors import ConfigError, nearest
from plmctl.core.parts import part_of
from plmctl.core.values import DropoutRate
from plmctl.nn.cells.base import Cell
from plmctl.nn.dropout import Dropout
from plmctl.nn.env import Env, Streams

Activation = Callable[[Tensor], Tensor]


def square_relu(x: Tensor) -> Tensor:
    """`max(x, 0)^2` (So et al., 2021, arXiv:2109.08668, sec. 4)."""
    return F.relu(x).square()


ACTIVATIONS: dict[str, Activation] = {
    "gelu": F.gelu,  # erf form (Hendrycks and Gimpel, 2016, arXiv:1606.08415)
    "gelu_tanh": partial(F.gelu, approximate="tanh"),  # the form in the released BERT and GPT code
    "relu": F.relu,
    "square_relu": square_relu,
    "silu": F.silu,
    "sigmoid": F.sigmoid,
    "tanh": F.tanh,
}


def find_activation(name: str) -> Activation:
    """The torch function called `name`; a ConfigError names the nearest one."""
    if name not in ACTIVATIONS:
        raise ConfigError(
            "activation", name, f"one of {', '.join(ACTIVATIONS)}{nearest(name, ACTIVATIONS)}"
        )
    return ACTIVATIONS[name]


@part_of("cells")
class FeedForward(Cell):
    """`down(activation(up(x)))`, [B, T, W] -> [B, T, W] through `inner_width`; `dropout` acts on
    the activations (BERT: 0).
    """

    computes = "feed-forward"

    def __init__(
        self,
        *,
        width: int,
        inner_width: int,
        activation: str,
        dropout: DropoutRate = 0.0,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.activation = find_activation(activation)
        self.up = nn.Linear(width, inner_width, bias=bias)
        self.down = nn.Linear(inner_width, width, bias=bias)
        self.dropout = Dropout(rate=dropout)

    @property
    def projection(self) -> nn.Linear:  # type: ignore[override]
        return self.down

    def forward(self, streams: Streams, env: Env) -> Tensor:
        x = streams["text"]
        return self.down(self.dropout(self.activation(self.up(x))))
