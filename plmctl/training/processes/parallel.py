"""The ways in which processes share one training, and the numbers of processes that they need."""

from __future__ import annotations

from plmctl.core.errors import ConfigError

TEAMS = "train.tensor_parallel"
REPLICATED, SHARDED, HYBRID = "replicated", "sharded", "hybrid"


def count_shares(parallel: str, processes: int, shard_size: int | None) -> int:
    """The number of shares into which weights are divided; 1: every process has all of them."""
    return {SHARDED: processes, HYBRID: shard_size or 1}.get(parallel, 1)


def count_teams(processes: int, team: int) -> int:
    """The number of teams, each with rows of its own, among so many processes."""
    return max(1, processes // team)


def check_parallel(
    parallel: str, processes: int, *, shard_size: int | None, offload: str = "none", team: int = 1
) -> None:
    """ConfigError where the settings contradict each other or the number of processes.

    Args:
        parallel: The way in which teams share weights; so are the next two.
        team: The number of processes that compute cells together.
    """
    if processes % team:
        more = -(-processes // team) * team
        allowed = f"a divisor of the {processes} processes: so many compute the same rows together"
        raise ConfigError(TEAMS, team, allowed, fix=f"train.processes={more}")
    processes //= team
    who = "processes" if team == 1 else f"teams of {team} processes"
    sizes = [n for n in range(2, processes) if processes % n == 0]
    if shard_size is not None and parallel != HYBRID:
        allowed = "null: only train.parallel=hybrid divides weights among a part of the processes"
        fix = "train.parallel=hybrid" if shard_size in sizes else "train.shard_size=null"
        raise ConfigError("train.shard_size", shard_size, allowed, fix=fix)
    if parallel == REPLICATED:
        if offload != "none":
            allowed = "none: only weights that are divided wait in the memory of the host"
            raise ConfigError("train.offload", offload, allowed, fix="train.parallel=sharded")
        return
    if processes == 1:
        one = "one process" if team == 1 else f"one team of {team} processes"
        allowed = f"replicated: {one} has no other to divide weights with"
        raise ConfigError("train.parallel", parallel, allowed, fix=f"train.processes={2 * team}")
    if parallel == SHARDED:
        return
    if not sizes:
        allowed = f"sharded: {processes} {who} cannot form smaller groups of equal size"
        fix = "train.parallel=sharded" + " train.shard_size=null" * (shard_size is not None)
        raise ConfigError("train.parallel", parallel, allowed, fix=fix)
    if shard_size not in sizes:
        allowed = f"{', '.join(map(str, sizes))}: groups of equal size of {processes} {who}"
        fix = f"train.shard_size={sizes[-1]}"
        raise ConfigError("train.shard_size", shard_size, allowed, fix=fix)
