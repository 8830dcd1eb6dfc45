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
        """Set the weights with which it begins there, in place of those that were drawn."""
        raise NotImplementedError(type(self).__name__)
