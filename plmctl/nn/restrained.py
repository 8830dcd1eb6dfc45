"""Weights with a penalty of their own, beside the loss of their predictions."""

from __future__ import annotations

from torch import Tensor, nn


class Restrained(nn.Module):
    """A part whose `penalty()`, [], is added to the loss; there is none if `strength` is 0."""

    strength: float = 0.0

    def penalty(self) -> Tensor:
        """The penalty, a scalar tensor."""
        raise NotImplementedError(type(self).__name__)
