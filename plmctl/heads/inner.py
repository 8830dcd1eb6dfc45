"""The layer between states and the last map of a head."""

from __future__ import annotations

from typing import TypedDict

from torch import Tensor, nn

from plmctl.nn.cells.feedforward import find_activation


class BiasesAndNorm(TypedDict, total=False):
    dense_bias: bool
    norm_eps: float | None
    norm_bias: bool


class InnerSettings(BiasesAndNorm, total=False):
    """The settings of `Inner` that heads pass on."""

    dense: bool
    activation: str


class Inner(nn.Module):
    """`norm(activation(dense(h)))`, [..., columns] -> [..., width]; a base of heads.

    Without `dense`, states stay as they are. `dense_bias` is that of the map; `norm_eps` null: no
    norm.
    """

    def __init__(
        self,
        *,
        width: int,
        columns: int | None = None,
        dense: bool = False,
        activation: str = "gelu",
        dense_bias: bool = True,
        norm_eps: float | None = None,
        norm_bias: bool = True,
    ) -> None:
        super().__init__()
        self.activation = find_activation(activation)
        self.dense = nn.Linear(columns or width, width, bias=dense_bias) if dense else None
        normed = dense and norm_eps is not None
        self.norm = nn.LayerNorm(width, eps=norm_eps or 0.0, bias=norm_bias) if normed else None

    def transform(self, features: Tensor) -> Tensor:
        """[..., outputs] what the last map reads, apart from dropout."""
        if self.dense is None:
            return features
        features = self.activation(self.dense(features))
        return features if self.norm is None else self.norm(features)
