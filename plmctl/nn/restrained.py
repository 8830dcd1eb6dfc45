"""Weights with a penalty of their own, in addition to the loss of their predictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from torch import Tensor, nn

# the notes of parts in the passes over a batch (`Env.note`)
Noted: TypeAlias = Mapping[nn.Module, Sequence[Tensor]]


class Restrained(nn.Module):
    """A part whose `penalty()`, [], is added to the loss, unless `strength` is 0.

    `term` names the sum of such penalties in the loss. Parts that are `always` restrained have the
    term at strength 0, too: they are measured, or keep their weights within bounds.
    """

    strength: float = 0.0
    term = "penalty"
    always = False
    measures: frozenset[str] = frozenset()  # the names of the results of `measure`

    def penalty(self, noted: Sequence[Tensor] = ()) -> Tensor:
        """The penalty, a scalar tensor, of its weights or of its notes in `noted`."""
        raise NotImplementedError(type(self).__name__)

    def states(self) -> list[nn.Module]:
        """Modules that only training needs, whose tensors are saved with the run."""
        return []

    def before_step(self, share: float) -> None:
        """Called when the gradient of an update is computed, which ends the share of the run."""

    def after_step(self, step: int) -> None:
        """Called after every update."""

    @staticmethod
    def measure(parts: Sequence[Restrained], noted: Noted) -> dict[str, Tensor]:
        """{name: number} that are logged of all `parts` with this term."""
        return {}


def find_restrained(module: nn.Module) -> list[Restrained]:
    """The parts of a module whose penalty is added to the loss, or that are always restrained."""
    parts = (part for part in module.modules() if isinstance(part, Restrained))
    return [part for part in parts if part.strength or part.always]
