"""One process of test_parts_of_processes, `python -m toy_parts <folder> load|save [here|beside]`:
its tensors are divided among all processes, and saved by them or by others beside them.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from plmctl.training import checkpoint
from plmctl.training.checkpoint import Checkpoints, Snapshot
from plmctl.training.processes.world import World, join, leave
from plmctl.training.saving.saves import Saves

ROWS, PADDED = 10, 13  # of a padded table
DIVIDED = {"table": (PADDED, 3), "uneven": (7, 2), "single": (1,), "half": (4, 4)}


def whole_of(name: str) -> Tensor:
    """The tensor of this name, the same in every process."""
    shape = DIVIDED[name]
    values = torch.arange(float(torch.Size(shape).numel())).view(shape) + len(name) / 7
    if name == "table":
        values[ROWS:] = 0
    return values.bfloat16() if name == "half" else values


def divided(world: World) -> dict[str, Any]:
    """These tensors as DTensors: in four processes, in two groups of two with the same blocks."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    pairs = world.size == 4
    mesh = init_device_mesh("cpu", (2, 2) if pairs else (world.size,))
    first = [Replicate()] if pairs else []
    return {
        name: distribute_tensor(whole_of(name), mesh, [*first, Shard(1 if name == "half" else 0)])
        for name in DIVIDED
    }


def refuse(*given: Any, **named: Any) -> None:
    raise AssertionError("a whole tensor was gathered")


def main(folder: str, verb: str, where: str = "here") -> None:
    from torch.distributed.tensor import DTensor

    world = join("cpu")
    tensors = divided(world)
    DTensor.full_tensor = DTensor.redistribute = refuse  # type: ignore[method-assign]
    checkpoints = Checkpoints(Path(folder) / "checkpoints")
    if verb == "save":
        with Saves(checkpoints, world, background=where == "beside") as saves:
            for step in (1, 2):
                states = {f"exp_avg/{name}": tensor for name, tensor in tensors.items()}
                snapshot = Snapshot(
                    model={**tensors, "plain": torch.full((3,), float(step))},
                    objective={},
                    optimizer={**states, "step/table": torch.tensor(step)},
                    random={f"{world.rank}/cpu": torch.tensor([world.rank])},
                    trainer={"progress": {"step": step}},
                    rows={"model/table": ROWS, "optimizer/exp_avg/table": ROWS},
                )
                saves.save(snapshot, step=step, best_step=None)
                tensors["uneven"].to_local().add_(100)  # the next one has other numbers
        return
    newest = checkpoints.newest(world)
    assert newest is not None
    saved = checkpoint.read(newest, world)
    like = {
        "model": tensors,
        "optimizer": {f"exp_avg/{name}": tensor for name, tensor in tensors.items()},
    }
    rows = {"model/table": ROWS, "optimizer/exp_avg/table": ROWS}
    placed = saved.placed(like, rows)
    tensors["uneven"].to_local().add_(100)
    for name, tensor in tensors.items():
        for found in (placed.model[name], placed.optimizer[f"exp_avg/{name}"]):
            assert found.placements == tensor.placements
            assert found.to_local().equal(tensor.to_local())
    assert placed.model["plain"].tolist() == [2, 2, 2]


if __name__ == "__main__":
    torch.set_num_threads(1)
    try:
        main(*sys.argv[1:])
    finally:
        leave()
