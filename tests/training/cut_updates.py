"""The losses and the gradient of one update of a command, its rows cut into other micro-batches or
processes: `python -m tests.training.cut_updates <file of commands> <folder>` is one process of
several.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor, nn

from plmctl.config.command import perform
from plmctl.config.compose import compose
from plmctl.core.batch import Batch
from plmctl.nn.dropout import Dropout
from plmctl.training.meter import Meter, sum_parts
from plmctl.training.trainer import Trainer

ONCE = ("train.steps=1", "train.threads=1", "train.precision=fp32", "train.compile=false",
        "train.eval_every=0", "train.save_every=0", "train.device=cpu")  # fmt: skip
WHOLE = 1 << 20

# losses and logs by name, gradients by name of the parameter
Found = tuple[dict[str, float], dict[str, Tensor]]


class _Enough(Exception):
    """Ends a command."""


def find_updates(
    verb: str, words: Sequence[str], cuts: Mapping[str, int], *, dropout: bool = False
) -> dict[str, Found]:
    """{name: what the first update of a command gives, in float64, with micro-batches of so many
    rows}; empty in processes that are not the main one.
    """
    found: dict[str, Found] = {}

    def fit(trainer: Trainer) -> None:
        for module in (trainer.model, trainer.objective):
            module.double()
            if not dropout:
                drop_nothing(module)
        source: Any = trainer._begin(trainer.stages[0])
        start = source.state_dict()
        for name, rows in cuts.items():
            for part in (source, *getattr(source, "members", {}).values()):
                part.micro_batch_size = rows
            source.load_state_dict(start)
            found[name] = take_update(trainer, next(source))
            source.close()
        if not trainer.world.main:
            found.clear()
        raise _Enough

    recipe = [] if "=" in words[0] else [words[0]]
    with mock.patch.object(Trainer, "fit", fit), pytest.raises(_Enough):
        perform(compose(verb, *(recipe or [None]), [*words[len(recipe) :], *ONCE]).asked())
    return found


def take_update(trainer: Trainer, micro_batches: list[Batch]) -> Found:
    """What an update of these micro-batches gives."""
    torch.manual_seed(trainer.world.rank)
    update, meter = trainer.update, Meter()
    trainer.memory.clear()
    _, entries = update.gradient(micro_batches, update.count(micro_batches, {}))
    meter.extend(entries)
    gradients = {n: p.grad.clone() for n, p in trainer.parameters if p.grad is not None}
    update.end()
    sums = sum_parts(trainer.world.gather(meter.sums()))
    return {name: total / (count or 1) for name, (total, count) in sums.items()}, gradients


def drop_nothing(module: nn.Module) -> None:
    """Set every rate of dropout inside to 0."""
    for part in module.modules():
        if isinstance(part, Dropout):
            part.rate = 0.0
        elif isinstance(getattr(part, "dropout", None), float):
            part.dropout = 0.0


def measure_difference(one: Found, other: Found) -> dict[str, float]:
    """The largest difference of losses, and of the gradient, as a share of its length."""
    losses, gradients = one
    length = torch.stack([g.norm() for g in gradients.values()]).norm()
    names = gradients.keys() | other[1].keys()
    zero = torch.zeros(())
    apart = torch.stack(
        [(gradients.get(n, zero) - other[1].get(n, zero)).norm() for n in sorted(names)]
    ).norm()
    of_losses = {
        name: abs(value - other[0].get(name, float("nan")))
        for name, value in losses.items()
        if name.startswith("loss")
    }
    return {**of_losses, "gradient": float(apart / length.clamp(min=1e-9))}


def main(commands: str, folder: str) -> None:
    for name, (verb, words) in json.loads(Path(commands).read_text()).items():
        print(name, flush=True)
        words = [*words, f"run.dir={folder}/{name}", "train.processes=2"]
        found = find_updates(verb, words, {"processes": WHOLE, "both": 3})
        if found:
            torch.save(found, Path(folder) / f"{name}.pt")


if __name__ == "__main__":
    main(*sys.argv[1:])
