"""The choice of a run's strategy."""

from __future__ import annotations

from typing import Any

import torch

from plmctl.training.processes.parallel import REPLICATED, SHARDED, check_parallel, count_shares
from plmctl.training.processes.world import World
from plmctl.training.strategy.base import Divide, FindUnits, Strategy, no_cells
from plmctl.training.strategy.replicated import Replicated
from plmctl.training.strategy.single import Single


def choose_strategy(
    world: World,
    parallel: str = REPLICATED,
    *,
    shard_size: int | None = None,
    find_units: FindUnits = lambda *modules: {},
    divide: Divide = no_cells,
    dtype: torch.dtype | None = None,
    offload: bool = False,
) -> Strategy:
    """`Single` for one process; for several `Replicated`, or `Sharded` over all of them or over
    groups of `shard_size`. Teams (`world.Teams`) have `Sharded` in any case, with groups of one
    team where `parallel` divides no weights.

    Args:
        world: The processes of the run, or their teams.
        find_units: Finds the cells; this and the next three are those of `Sharded`.
        divide: Divides cells among the processes of a team.
        dtype: The number type of gathered weights.
        offload: Keep the shares in the memory of the host.

    Raises:
        ConfigError: if the number of processes does not allow it.
    """
    team = world.all.size // world.size
    check_parallel(parallel, world.all.size, shard_size=shard_size, team=team)
    if parallel == REPLICATED and team == 1:
        return Single(world) if world.size == 1 else Replicated(world)
    # torch's engine takes as long to import as torch itself
    from torch.distributed.device_mesh import init_device_mesh

    from plmctl.training.strategy.sharded import Sharded

    shares = count_shares(parallel, world.size, shard_size)
    shape = {"replicate": world.size // shares, "shard": shares}
    if parallel == SHARDED:
        del shape["replicate"]
    rows = tuple(shape)
    shape |= {"team": team} if team > 1 else {}
    mesh = init_device_mesh(world.device.type, tuple(shape.values()), mesh_dim_names=tuple(shape))
    own: dict[str, Any] = {"find_units": find_units, "dtype": dtype, "offload": offload}
    if team == 1:
        return Sharded(world, mesh, **own)
    return Sharded(world, mesh[rows], team=mesh["team"], divide=divide, **own)
