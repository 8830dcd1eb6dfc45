"""The mean of a run's last checkpoints as a model of its own (Vaswani et al., 2017, arXiv:1706.03762, sec. 6.1)."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from plmctl.errors import ConfigError, DataError
from plmctl.training.checkpoint import Checkpoints, damage, read

BESIDE = ("config.yaml", "tokenizer")  # what a checkpoint has of its run


def average(run: Path, out: Path, *, last: int, say: Callable[[str], None] = print) -> Path:
    """A checkpoint in `out` whose weights are the mean over the newest `last` of `run`; the optimizer's state is left out.

    ConfigError where that is not at least 2, or `out` has something; DataError where `run` has fewer or damaged ones.
    """
    if last < 2:
        raise ConfigError("--last", last, "at least 2 checkpoints")
    if out.exists() and any(out.iterdir()):
        raise ConfigError("--out", str(out), "is not empty", fix="another folder")
    if not run.is_dir():
        raise DataError("there is no such folder", file=run, fix="the folder of a run, or its checkpoints/")
    saved = Checkpoints(run / "checkpoints" if (run / "checkpoints").is_dir() else run, say=say)
    folders = [saved.path(step) for step in saved.steps()][-last:]
    if len(folders) < last:
        fix = f"--last {len(folders)}, or train with train.keep_last={last}" if len(folders) > 1 else f"train.keep_last={last}"
        raise DataError(f"has {len(folders)} checkpoints, {last} are to be averaged", file=run, fix=fix)
    for folder in folders:
        if problem := damage(folder):
            raise DataError(problem, file=folder, fix="a smaller --last, or remove this checkpoint")
    parts = [read(folder) for folder in folders]
    made = replace(
        parts[-1], model=mean([part.model for part in parts]), objective=mean([part.objective for part in parts]), optimizer={},
        random={},
    )  # fmt: skip

    def beside(folder: Path) -> None:
        for name in BESIDE:
            copy = shutil.copytree if (folders[-1] / name).is_dir() else shutil.copy2
            copy(folders[-1] / name, folder / name)  # type: ignore[operator]

    say(f"the mean of {', '.join(folder.name for folder in folders)}")
    return Checkpoints(out / "checkpoints", extras=beside, say=say).save(made, step=saved.steps()[-1])


def mean(parts: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of each tensor in float64, in its own type; of integers the last."""
    found = {}
    for name, tensor in parts[-1].items():
        whole = [part[name].double() for part in parts]
        found[name] = torch.stack(whole).mean(0).to(tensor.dtype) if tensor.is_floating_point() else tensor
    return found
