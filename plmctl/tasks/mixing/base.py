"""The rule that decides how often each of several tasks is trained."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from plmctl.core.parts import base_of


@base_of("mixing")
class Mixing(ABC):
    """How many updates of an epoch belong to each task; an update is of one task alone."""

    @abstractmethod
    def share_out(self, updates: Mapping[str, int]) -> dict[str, int]:
        """{task: its updates in an epoch}, one at least.

        Args:
            updates: {task: how many updates read each of its examples once}.
        """
