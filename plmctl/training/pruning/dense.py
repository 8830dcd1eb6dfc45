"""The weights behind factors or masks that are learned."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from plmctl.training.stabilisers.base import KeptTensors


class DenseWeights(nn.Module):
    """Weights W. The model holds `W' = W M` between two updates, W only while one is made.

    Args:
        weights: {name: W}.
    """

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.covered = tuple(weights)
        self.dense = KeptTensors(weights)

    def restore(self, weights: Mapping[str, Tensor]) -> None:
        """Put W into the model."""
        for name in self.covered:
            weights[name].copy_(self.dense.of(name))

    def take(self, weights: Mapping[str, Tensor]) -> None:
        """Keep the W of the model."""
        for name in self.covered:
            self.dense.of(name).copy_(weights[name])

    def write(self, weights: Mapping[str, Tensor], factors: Mapping[str, Tensor]) -> None:
        """Put `W M` into the model.

        Args:
            factors: {name: M}, a number for each weight or for each of its columns.
        """
        for name in self.covered:
            dense = self.dense.of(name)
            weights[name].copy_(dense * factors[name].to(dense.dtype))


def add_gradient(values: nn.Parameter, change: Tensor) -> None:
    """Add to the gradient of values that no backward pass reaches."""
    change = change.to(values.dtype)
    values.grad = change if values.grad is None else values.grad + change
