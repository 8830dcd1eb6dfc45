"""The ways in which processes share one training, and the numbers of processes that they need."""

from __future__ import annotations

from plmctl.core.errors import ConfigError

REPLICATED, SHARDED, HYBRID = "replicated", "sharded", "hybrid"


def count_shares(parallel: str, processes: int, shard_size: int | None) -> int:
    """The number of shares into which weights are divided; 1: every process has all of them."""
    return {SHARDED: processes, HYBRID: shard_size or 1}.get(parallel, 1)


def check_parallel(
    parallel: str, processes: int, *, shard_size: int | None, offload: str = "none"
) -> None:
    """ConfigError where the settings contradict each other or the number of processes."""
    if shard_size is not None and parallel != HYBRID:
        allowed = "null: only train.parallel=hybrid divides weights among a part of the processes"
        raise ConfigError("train.shard_size", shard_size, allowed, fix="train.parallel=hybrid")
    if parallel == REPLICATED:
        if offload != "none":
            allowed = "none: only weights that are divided wait in the memory of the host"
            raise ConfigError("train.offload", offload, allowed, fix="train.parallel=sharded")
        return
    if processes == 1:
        allowed = "replicated: one process has no other to divide weights with"
        raise ConfigError("train.parallel", parallel, allowed, fix="train.processes=2")
    if parallel == SHARDED:
        return
    sizes = [n for n in range(2, processes) if processes % n == 0]
    if not sizes:
        allowed = f"sharded: {processes} processes cannot form groups of equal size"
        raise ConfigError("train.parallel", parallel, allowed, fix="train.parallel=sharded")
    if shard_size not in sizes:
        allowed = f"{', '.join(map(str, sizes))}: groups of equal size of {processes} processes"
        fix = f"train.shard_size={sizes[-1]}"
        raise ConfigError("train.shard_size", shard_size, allowed, fix=fix)
