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
from plmctl.artifacts.deployed import make_runtime
from plmctl.artifacts.loading import CARD, load, load_source, open_source
from plmctl.compress.bench import Bench, Costs
from plmctl.compress.memory import open_exported, open_file
from plmctl.compress.shape import Shape
from plmctl.core.errors import UsageError
from plmctl.jobs.command import execute
from plmctl.runtime.base import Program
from plmctl.runtime.graph import export
from plmctl.runtime.signature import name_published
from plmctl.runtime.stored import LIBRARIES
from plmctl.storage.atomic import open_folder, write_json
from plmctl.storage.gate import admit
from plmctl.storage.reading import read_json
from plmctl.use.deploying import deploy

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
            found = {"refused": str(error).splitlines()[0]}
        write_json(unfinished / MEASURED, found)


def read_costs(found: Mapping[str, Any]) -> Costs | None:
    """The costs that a step has measured; None where it was refused."""
    return Costs(**found["costs"]) if "costs" in found else None


def measure_run(bench: Bench, config: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The score and the costs of the run itself, by PyTorch in fp32."""
    return {"score": bench.score(), "costs": asdict(bench.measure_run())}


def measure_shape(bench: Bench, config: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The costs of a shape in a library: the run's own weights cut, exported and timed."""
    shape = Shape.read(config)
    loaded = load_source(shape.cut(open_source(bench.checkpoint, plugins=bench.plugins)))
    graph = export(Program(loaded.model, bench.task.logits), bench.longest, name_published)
    library = LIBRARIES[config["library"]](int8=config["int8"])
    with open_folder(folder / MODEL) as place:
        library.write(graph, place, bench.batches[:2])
    answer = library.load(folder / MODEL, graph.signature)
    how: Any = {"int8": config["int8"]}
    opening = partial(open_file, config["library"], folder / MODEL, graph.signature, **how)
    costs = bench.cost(answer, loaded.model, _measure_size(folder / MODEL), opening)
    shutil.rmtree(admit(folder / MODEL))
    return {"costs": asdict(costs)}


def export_model(bench: Bench, config: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """A model as a file of a library, with its score and its costs."""
    source = Path(config["source"])
    if config["compact"]:
        convert(source, folder / COMPACT, to="plmctl", compact=True, plugins=bench.plugins)
        source = folder / COMPACT
    place, library, int8 = folder / MODEL, config["library"], config["int8"]
    deploy(source, place, to=library, int8=int8, keep=0.0, plugins=bench.plugins)
    card = read_json(place / CARD)
    runtime = make_runtime(place, card)
    answer = partial(runtime.answer, bench.program)
    model = load(source, plugins=bench.plugins).model
    opening = partial(open_exported, place, bench.plugins)
    costs = bench.cost(answer, model, _measure_size(place), opening)
    return {"score": card["scores"]["after"][bench.metric], "costs": asdict(costs)}


def _measure_size(folder: Path) -> int:
    """The bytes of the weights in an exported folder."""
    return sum(file.stat().st_size for file in folder.glob("model.*") if file.name != CARD)
