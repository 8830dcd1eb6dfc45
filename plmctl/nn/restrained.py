"""Weights with a penalty of their own, beside the loss of their predictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from torch import Tensor, nn

# what parts have noted in the passes over a batch (`Env.note`)
Noted: TypeAlias = Mapping[nn.Module, Sequence[Tensor]]


class Restrained(nn.Module):
    """A part whose `penalty()`, [], is added to the loss; there is none if `strength` is 0.

    `term` names the sum of such penalties in the loss. Parts that are `always` restrained have the
    term at strength 0, too: they are measured, or keep their weights within bounds.
    """

    strength: float = 0.0
    term = "penalty"
    always = False
    measures: frozenset[str] = frozenset()  # the names of what `measure` gives

    def penalty(self, noted: Sequence[Tensor] = ()) -> Tensor:
        """The penalty, a scalar tensor, of its weights or of what it has `noted`."""
        raise NotImplementedError(type(self).__name__)

    def after_step(self) -> None:
        """Called after every update."""

    @staticmethod
    def measure(parts: Sequence[Restrained], noted: Noted) -> dict[str, Tensor]:
        """{name: number} that are logged of all `parts` with this term."""
        return {}
