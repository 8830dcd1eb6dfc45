"""Each example of each task once an epoch."""

from __future__ import annotations

from collections.abc import Mapping

from plmctl.core.parts import part_of
from plmctl.core.values import Count
from plmctl.tasks.mixing.base import Mixing


@part_of("mixing")
class Proportional(Mixing):
    """`min(n, limit)` updates of a task with n: all of them, in a drawn order, is MT-DNN's way (Liu
    et al., 2019, arXiv:1901.11504, algorithm 1); with a limit, T5's examples-proportional mixing
    (Raffel et al., 2020, arXiv:1910.10683, sec. 3.5.2).

    Differs: T5 draws the task of each example anew, here an epoch has exactly these shares.

    Args:
        limit: updates of a task in an epoch at most; the next epoch goes on behind them. None: all.
    """

    def __init__(self, *, limit: Count | None = None) -> None:
        self.limit = limit

    def share_out(self, updates: Mapping[str, int]) -> dict[str, int]:
        return {name: min(n, self.limit or n) for name, n in updates.items()}
