"""The work of each step of a compression, and what it leaves behind: `measured.json`."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch

from plmctl.artifacts.convert import convert
from plmctl.artifacts.loading import CARD, open_source
from plmctl.compress.bench import Bench, Costs
from plmctl.compress.files import ModelFiles, WrittenModel, files_of
from plmctl.compress.form import Form
from plmctl.compress.shape import Shape
from plmctl.core.errors import UsageError, list_problems
from plmctl.jobs.command import execute
from plmctl.storage.atomic import open_folder, write_json
from plmctl.storage.gate import admit

MEASURED, MODEL, COMPACT = "measured.json", "model", "compact"  # in the folder of a step
TRAIN, RUN, SHAPE, EXPORT = "finetune", "measure", "shape", "export"  # the kinds of steps


def work_with(bench: Bench) -> Callable[[dict[str, Any], Path], Any]:
    """The function that does a step, by its record, in the folder of its run."""
    works = {RUN: measure_run, SHAPE: measure_shape, EXPORT: export_model}
    known = {name: partial(_do, work, bench) for name, work in works.items()}
    return lambda record, folder: (known.get(record["verb"]) or execute)(record, folder)


def _do(
    work: Callable[[Bench, Mapping[str, Any], Path], Mapping[str, Any]],
    bench: Bench,
    record: Mapping[str, Any],
    folder: Path,
) -> None:
    """Do a step in a new folder, which appears when all is in it. A library that cannot compute the
    model is a result, too.
    """
    shutil.rmtree(admit(folder), ignore_errors=True)
    torch.set_num_threads(bench.threads)
    with open_folder(folder) as unfinished:
        try:
            found = work(bench, record["config"], unfinished)
        except UsageError as error:
            found = {"refused": list_problems(error)}
        write_json(unfinished / MEASURED, found)


def read_costs(found: Mapping[str, Any]) -> Costs | None:
    """The costs that a step has measured; None where it was refused."""
    return Costs(**found["costs"]) if "costs" in found else None


def measure_run(bench: Bench, config: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The score and the costs of the run itself, by PyTorch in fp32."""
    return {"score": bench.score(bench.loaded), "costs": asdict(bench.measure_run())}


def measure_shape(bench: Bench, config: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The costs of a shape in a form: the run's own weights cut, written and timed."""
    shape = Shape.read(config)
    source = shape.cut(open_source(bench.checkpoint, plugins=bench.plugins))
    admit(folder / MODEL).mkdir()
    written = _files(bench, config).write_cut(source, folder / MODEL)
    costs = _cost(bench, written, folder)
    shutil.rmtree(admit(folder / MODEL))
    return {"costs": costs}


def export_model(bench: Bench, config: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """A trained model in a form, with its score and its costs."""
    source = Path(config["source"])
    if config["compact"]:
        convert(source, folder / COMPACT, to="plmctl", compact=True, plugins=bench.plugins)
        source = folder / COMPACT
    written = _files(bench, config).write(source, folder / MODEL)
    return {"score": written.score, "costs": _cost(bench, written, folder)}


def _files(bench: Bench, config: Mapping[str, Any]) -> ModelFiles:
    return files_of(bench, Form(config["library"], config["bits"]))


def _cost(bench: Bench, written: WrittenModel, folder: Path) -> dict[str, Any]:
    size = _measure_size(folder / MODEL)
    return asdict(bench.cost(written.answer, written.model, size, written.opening))


def _measure_size(folder: Path) -> int:
    """The bytes of the weights in an exported folder."""
    return sum(file.stat().st_size for file in folder.glob("model.*") if file.name != CARD)
