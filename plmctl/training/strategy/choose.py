"""The choice of a run's strategy."""

from __future__ import annotations

from plmctl.training.processes.world import World
from plmctl.training.strategy.base import Strategy
from plmctl.training.strategy.replicated import Replicated
from plmctl.training.strategy.single import Single


def choose_strategy(world: World) -> Strategy:
    """`Single` for one process, `Replicated` for several."""
    return Single(world) if world.size == 1 else Replicated(world)
