"""The mean of a run's last checkpoints as a model of its own (Vaswani et al., 2017,
arXiv:1706.03762, sec. 6.1).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from plmctl.core.errors import ConfigError, DataError
from plmctl.core.spelling import spell_line
from plmctl.core.terminal import counted, tell
from plmctl.storage.atomic import write_json
from plmctl.storage.gate import admit
from plmctl.storage.paths import find_near
from plmctl.training.averaged import MADE
from plmctl.training.checkpoint import Checkpoints, Snapshot, damage, read, read_base

BESIDE = ("config.yaml", "tokenizer")  # files of its run that a checkpoint copies
# prefix of the tensors of a running average, in the state of the objective
KEPT = "teacher.average."


def average(run: Path, out: Path, *, last: int, say: Callable[[str], None] = tell) -> Path:
    """Write a checkpoint into `out` whose weights are the mean over the newest `last` of `run`,
    without the optimizer's state.

    Returns:
        The folder of the checkpoint.

    Raises:
        ConfigError: if `last` is below 2, or `out` is not empty.
        DataError: if `run` has too few checkpoints or damaged ones.
    """
    if last < 2:
        raise ConfigError("--last", last, "at least 2 checkpoints")
    saved = _open(run, out, say)
    folders = [saved.path(step) for step in saved.steps()][-last:]
    if len(folders) < last:
        raise _lacks(run, out, len(folders), last)
    for folder in folders:
        if problem := damage(folder):
            raise DataError(problem, file=folder, fix="a smaller --last, or remove this checkpoint")
    parts = [read(folder) for folder in folders]
    averaged = replace(
        parts[-1],
        model=mean([part.model for part in parts]),
        objective=mean([part.objective for part in parts]),
        optimizer={},
        random={},
    )
    what = f"the mean of {', '.join(folder.name for folder in folders)}"
    say(what)
    return _save(folders[-1], out, averaged, say, made={"what": what, "run": str(run)})


def extract_average(run: Path, out: Path, *, say: Callable[[str], None] = tell) -> Path:
    """Write a checkpoint into `out` with the running average that the newest checkpoint of the run
    holds (`distill.self_ensemble`).

    Returns:
        The folder of the checkpoint.

    Raises:
        ConfigError: if `out` is not empty.
        DataError: if the run keeps no average.
    """
    saved = _open(run, out, say)
    newest = saved.newest()
    if newest is None:
        raise DataError("has no complete checkpoint", file=run, fix="train until the first save")
    last = read(newest)
    known = {
        name.removeprefix(KEPT): tensor
        for name, tensor in last.objective.items()
        if name.startswith(KEPT)
    }
    if missing := [name for name in last.model if name not in known]:
        what = f"keeps no average of {missing[0]}" if known else "keeps no average"
        fix = "train with distill=self_ensemble, or --last 5: the mean of checkpoints"
        raise DataError(what, file=run, fix=fix)
    model = {
        name: known[name][: len(own)] if own.dim() else known[name]
        for name, own in last.model.items()
    }
    what = f"the average that {newest.name} keeps"
    say(what)
    alone = replace(last, model=model, objective={}, optimizer={}, random={})
    return _save(newest, out, alone, say, made={"what": what, "run": str(run)})


def _lacks(run: Path, out: Path, there: int, last: int) -> DataError:
    """An error on fewer checkpoints than are to be averaged."""
    fix = "the folder of a run whose train.keep_last is 2 or more"
    if there > 1:
        words = ["--last", str(there)]
        words += ["--out", str(out)] if str(out) != f"{run}-average" else []
        fix = f"{spell_line('average', run, *words)}  # train.keep_last={last} keeps so many"
    what = f"has {counted(there, 'checkpoint')}, {last} are to be averaged"
    return DataError(what, file=run, fix=fix)


def _open(run: Path, out: Path, say: Callable[[str], None]) -> Checkpoints:
    """The checkpoints of `run`, after a check that `out` is empty."""
    if out.exists() and any(out.iterdir()):
        raise ConfigError("--out", str(out), "is not empty", fix="--out <another folder>")
    if not run.is_dir():
        near = find_near(run)
        fix = spell_line("average", near) if near else "the folder of a run, or its checkpoints/"
        raise DataError("there is no such folder", file=run, fix=fix)
    return Checkpoints(run / "checkpoints" if (run / "checkpoints").is_dir() else run, say=say)


def _save(
    like: Path,
    out: Path,
    snapshot: Snapshot,
    say: Callable[[str], None],
    *,
    made: Mapping[str, str],
) -> Path:
    """Write `snapshot` as a checkpoint, with the config and the tokenizer of `like`, and how it was
    made.
    """

    def add_files(folder: Path) -> None:
        write_json(folder / MADE, made)
        for name in BESIDE:
            copy = shutil.copytree if (like / name).is_dir() else shutil.copy2
            copy(like / name, admit(folder / name))  # type: ignore[operator]

    return Checkpoints(out / "checkpoints", extras=add_files, base=read_base(like), say=say).save(
        snapshot, step=int(like.name.removeprefix("step-"))
    )


def mean(parts: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of each tensor, computed in float64; integers are those of the last part."""
    means = {}
    for name, tensor in parts[-1].items():
        values = [part[name].double() for part in parts]
        means[name] = (
            torch.stack(values).mean(0).to(tensor.dtype) if tensor.is_floating_point() else tensor
        )
    return means
