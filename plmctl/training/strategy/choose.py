"""The choice of a run's strategy."""

from __future__ import annotations

import torch

from plmctl.training.processes.parallel import HYBRID, REPLICATED, check_parallel
from plmctl.training.processes.world import World
from plmctl.training.strategy.base import FindUnits, Strategy
from plmctl.training.strategy.replicated import Replicated
from plmctl.training.strategy.single import Single


def choose_strategy(
    world: World,
    parallel: str = REPLICATED,
    *,
    shard_size: int | None = None,
    find_units: FindUnits = lambda *modules: {},
    dtype: torch.dtype | None = None,
    offload: bool = False,
) -> Strategy:
    """`Single` for one process; for several `Replicated`, or `Sharded` over all of them or over
    groups of `shard_size`.

    Args:
        find_units: Finds the cells; this and the next two are those of `Sharded`.
        dtype: The number type of gathered weights.
        offload: Keep the shares in the memory of the host.

    Raises:
        ConfigError: if the number of processes does not allow it.
    """
    check_parallel(parallel, world.size, shard_size=shard_size)
    if parallel == REPLICATED:
        return Single(world) if world.size == 1 else Replicated(world)
    # torch's engine takes as long to import as torch itself
    from torch.distributed.device_mesh import init_device_mesh

    from plmctl.training.strategy.sharded import Sharded

    shape: dict[str, int] = {"shard": world.size}
    if parallel == HYBRID:
        assert shard_size is not None
        shape = {"replicate": world.size // shard_size, "shard": shard_size}
    mesh = init_device_mesh(world.device.type, tuple(shape.values()), mesh_dim_names=tuple(shape))
    return Sharded(world, mesh, find_units=find_units, dtype=dtype, offload=offload)
