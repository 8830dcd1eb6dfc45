"""The layers behind the pooling of a model of sentences, as `sentence-transformers` publishes them:
linear maps, norms, vectors of length 1, the first columns alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional as F

from plmctl.core.parts import part_of
from plmctl.core.values import Count
from plmctl.heads.base import About, Head
from plmctl.nn.cells.feedforward import find_activation


@part_of("heads")
class SentenceLayers(Head):
    """Layers one after the other, [..., W] -> [..., C].

    Args:
        layers: The layers, in their order.
    """

    about: About = "features"

    def __init__(self, *, layers: Sequence[Head]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, features: Tensor) -> Tensor:
        for layer in self.layers:
            features = layer(features)
        return features


@part_of("heads")
class SentenceDense(Head):
    """`activation(linear(x))`, [..., inputs] -> [..., columns].

    Args:
        inputs: Columns of x.
        columns: Columns of the result.
        bias: Whether the map adds a vector.
        activation: The name of a function; None: none.
    """

    about: About = "features"

    def __init__(
        self, *, inputs: Count, columns: Count, bias: bool = True, activation: str | None = None
    ) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, columns, bias=bias)
        self.activation = nn.Identity() if activation is None else find_activation(activation)

    def forward(self, x: Tensor) -> Tensor:
        return self.activation(self.linear(x))


@part_of("heads")
class Norm(Head):
    """The layer norm of a vector, `(x - mean) / sqrt(var + 1e-5) * weight + bias`."""

    about: About = "features"

    def __init__(self, *, columns: Count) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(columns)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x)  # type: ignore[no-any-return]


@part_of("heads")
class UnitLength(Head):
    """`x / |x|`."""

    about: About = "features"

    def forward(self, x: Tensor) -> Tensor:
        return F.normalize(x, dim=-1)


@part_of("heads")
class FirstColumns(Head):
    """The first columns of x, all where it has no more (Kusupati et al., 2022, arXiv:2205.13147).

    Args:
        columns: Their number.
    """

    about: About = "features"

    def __init__(self, *, columns: Count) -> None:
        super().__init__()
        self.columns = columns

    def forward(self, x: Tensor) -> Tensor:
        return x[..., : self.columns]
