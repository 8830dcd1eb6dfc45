"""The layer between states and the last map of a head."""

from __future__ import annotations

from torch import Tensor, nn

from plmctl.nn.cells.feedforward import find_activation


class Inner(nn.Module):
    """`norm(activation(dense(h)))`, [..., inputs] -> [..., outputs]; a base of heads.

    The parts are the head's own: `dense`, `activation` and `norm`. Without `dense`, states stay as
    they are.
    """

    dense: nn.Linear | None
    norm: nn.LayerNorm | None

    def make_inner(
        self,
        inputs: int,
        outputs: int,
        *,
        dense: bool,
        activation: str,
        bias: bool,
        norm_eps: float | None,
        norm_bias: bool,
    ) -> int:
        """Make the layer; returns the columns of its result.

        Args:
            inputs: Columns of the states.
            dense: Whether there is such a layer.
            activation: The function after the map.
            bias: Whether the map has a bias.
            norm_eps: Epsilon of the layer norm of the result; None: no norm.
        """
        self.activation = find_activation(activation)
        self.dense = nn.Linear(inputs, outputs, bias=bias) if dense else None
        normed = dense and norm_eps is not None
        self.norm = nn.LayerNorm(outputs, eps=norm_eps or 0.0, bias=norm_bias) if normed else None
        return outputs if dense else inputs

    def transform(self, features: Tensor) -> Tensor:
        """[..., outputs] what the last map reads, apart from dropout."""
        if self.dense is None:
            return features
        features = self.activation(self.dense(features))
        return features if self.norm is None else self.norm(features)
