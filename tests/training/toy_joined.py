"""One process of test_joined: `python -m toy_joined <folder> <parallel> <steps> [resume]`. It
trains the toy under a strategy, and leaves its whole state in `<folder>/<steps>.pt`.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch

from plmctl.core.shares import is_shared
from plmctl.training.processes.world import World, join, leave
from plmctl.training.strategy.choose import choose_strategy
from tests.training import toy


def refuse(*given: Any, **named: Any) -> None:
    raise AssertionError("a whole tensor was gathered")


def state_of(trainer: Any) -> dict[str, torch.Tensor]:
    """The model and the state of its optimizer, by name, whole."""
    rows = {"rows": trainer.rows}
    found = {
        **trainer.strategy.module_tensors(trainer.model),
        **trainer.strategy.module_tensors(trainer.objective, without=trainer.model),
        **trainer.strategy.optimizer_tensors(trainer.optimizer, trainer.parameters, **rows),
    }
    whole = {n: t.full_tensor() if is_shared(t) else t for n, t in found.items()}
    return {name: tensor.detach().clone() for name, tensor in whole.items()}


def make(folder: str, parallel: str, steps: int, world: World) -> Any:
    """A trainer under a strategy, whose model has a frozen part and a tied one."""
    toy.choose_strategy = partial(choose_strategy, parallel=parallel)  # type: ignore[assignment]
    stage = toy.Stage(
        batches=lambda: toy.ToyBatches(8, 4, world), frozen=["backbone.block.3"], share=1.0
    )
    settings = {"log_every": 1, "save_every": 2, "save_async": parallel != "replicated"}
    return toy.make_trainer(
        Path(folder), steps=steps, dropout=0.0, world=world, stages=[stage], settings=settings
    )


def main(folder: str, parallel: str, steps: str, *options: str) -> None:
    world = join("cpu")
    trainer = make(folder, parallel, int(steps), world)
    if "resume" in options:
        trainer.resume(trainer.checkpoints.newest(world))
        loaded = state_of(trainer)
        if world.main:
            torch.save(loaded, Path(folder) / "loaded.pt")
    if parallel != "replicated":
        from torch.distributed.tensor import DTensor

        real, DTensor.full_tensor = DTensor.full_tensor, refuse  # type: ignore[method-assign]
    trainer.fit()
    if parallel != "replicated":
        DTensor.full_tensor = real  # type: ignore[method-assign]
    state = state_of(trainer)
    if world.main:
        torch.save(state, Path(folder) / f"{steps}.pt")


if __name__ == "__main__":
    torch.set_num_threads(1)
    try:
        main(*sys.argv[1:])
    finally:
        leave()
