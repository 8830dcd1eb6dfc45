"""Weights that cost something by themselves, beside what the loss says of their answers."""

from __future__ import annotations

from torch import Tensor, nn


class Restrained(nn.Module):
    """A part whose `penalty()`, [], is added to the loss; it asks for nothing where `strength`
    is 0.
    """

    strength: float = 0.0

    def penalty(self) -> Tensor:
        raise NotImplementedError(type(self).__name__)
