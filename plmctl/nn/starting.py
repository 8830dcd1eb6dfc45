"""Modules with their own initial weights."""

from __future__ import annotations

from torch import Generator, nn


class Starting(nn.Module):
    """A module with its own rule for its initial weights, which no rule below changes."""

    def start(self, generator: Generator) -> None:
        """Draw the initial weights."""
        raise NotImplementedError(type(self).__name__)


class FitsIn(nn.Module):
    """A module that a system adds to a model that is trained already."""

    def fit_in(self) -> None:
        """Replace the drawn weights by the ones with which the module begins."""
        raise NotImplementedError(type(self).__name__)
