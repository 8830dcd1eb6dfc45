"""The base of penalties on vectors."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor

from plmctl.core.parts import base_of


@base_of("graph_penalty")
class Penalty(ABC):
    """A cost of the size of the vectors of a question and its answer, in addition to the loss."""

    weight: float

    @abstractmethod
    def total(self, moduli: Tensor) -> Tensor:
        """[] the summed cost of vectors whose numbers have these absolute values, [B, W]."""
