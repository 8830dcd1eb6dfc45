"""A fine-tuned model as a file of another library, which computes it without PyTorch.

The answers of the file are compared with those of PyTorch, over all rows of a labelled split,
before a folder appears.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

from plmctl import __version__
from plmctl.artifacts.adapter_base import fold_methods
from plmctl.artifacts.convert import refuse_target
from plmctl.artifacts.deployed import OUTSIDE, make_runtime
from plmctl.artifacts.exportable import describe_unexportable
from plmctl.artifacts.kept_decision import (
    describe_export,
    fold_temperature,
    read_decision,
    write_decision,
)
from plmctl.artifacts.loading import CARD, Loaded, load_source, open_source
from plmctl.artifacts.trained_ranges import find_ranges
from plmctl.config.saved import CONFIG
from plmctl.core.batch import Batch
from plmctl.core.errors import DataError, PlmctlError, UsageError, list_problems
from plmctl.core.extras import EXTRAS, find_version, require_library
from plmctl.core.machine import cpu_sums_int8, describe_cpu, list_cpu_flags
from plmctl.core.rounding import round_floats
from plmctl.core.spelling import spell_line
from plmctl.core.terminal import WARN, counted, remark
from plmctl.runtime.base import Program, Runtime
from plmctl.runtime.eager import EagerRuntime
from plmctl.runtime.graph import TOLERANCE, TensorGraph, check, export
from plmctl.runtime.signature import PUBLISHED, SEGMENT, name_published
from plmctl.runtime.stored import LIBRARIES
from plmctl.runtime.whole_numbers import round_model
from plmctl.storage.atomic import name_finished, open_folder, write_json, write_text
from plmctl.storage.gate import admit
from plmctl.storage.settings_file import to_yaml
from plmctl.tasks import inference
from plmctl.tasks.calibration import LabelDecision
from plmctl.tasks.inference import Split
from plmctl.tasks.record import Example
from plmctl.tasks.task import Task, as_task
from plmctl.training.checkpoint import tensors_of
from plmctl.use.asked_task import open_task, read_examples
from plmctl.use.calibrating import decide_by_kept
from plmctl.use.predict import BATCH
from plmctl.use.usual_rows import choose_usual

TORCH = "runtime=torch"  # the fix of a runtime, and the end of its message
# the origin of the ranges of inputs: as libraries find them, or of training
RANGES = {"onnx": "of each batch (dynamic)", "openvino": "of usual rows (static)"}
TRAINED = "of training (stabiliser=[quantised])"
SEGMENTS = {SEGMENT, PUBLISHED[SEGMENT]}  # the names of an input with the segments of tokens
ONE_FILE = "--data dev.tsv, a labelled file in the layout of the task"
DIGITS = 6  # significant ones, for scores in model.json


@dataclass(frozen=True)
class RuntimeScores:
    """The answers of a runtime to a split.

    Args:
        logits: {name: [n, ...]}.
        metrics: The scores with the loss.
        rate: Rows a second.
        same: Whether all rows have one answer, although their labels differ.
    """

    logits: Mapping[str, np.ndarray]
    metrics: Mapping[str, float]
    rate: float
    same: bool = False


def deploy(
    source: Path,
    target: Path,
    *,
    to: str,
    int8: bool = False,
    keep: float = 0.99,
    data: str | None = None,
    calibrate: str | None = None,
    plugins: Sequence[str] = (),
) -> None:
    """Write a fine-tuned model into a folder that a library computes without PyTorch.

    Args:
        source: A run, or a checkpoint.
        target: The folder, which appears when all is in it.
        to: The library, "onnx" or "openvino".
        int8: Whether weights and inputs of matrix products have 8 bits.
        keep: The least share of the score that 8 bits keep.
        data: A labelled file to score; None: the dev split of the task.
        calibrate: Texts whose numbers are usual, for ranges of 8 bits; None: training rows.
        plugins: The packages outside plmctl that the model may be made of.

    Raises:
        UsageError: A library is missing, it cannot compute this model, or the answers differ.
    """
    refuse_target(target)
    with advise_instead(source, target, plugins):
        _deploy(source, target, to, data, plugins, keep=keep if int8 else None, calibrate=calibrate)


def _deploy(
    source: Path,
    target: Path,
    to: str,
    data: str | None,
    plugins: Sequence[str],
    *,
    keep: float | None,
    calibrate: str | None,
) -> None:
    """Write the folder; `keep` None: in fp32."""
    int8 = keep is not None
    for library in EXTRAS[to].libraries:
        if int8 or library != "nncf":
            require_library(library, to, f"--to {to}", otherwise=TORCH)
    loaded, decision, left = open_folded(source, plugins)
    task = open_graph_task(loaded, source)
    split = read_labelled(task, loaded, source, data)
    ranges = find_ranges(loaded.source) if int8 else None
    if ranges and calibrate is not None:
        what = f"{source} has the ranges of its training, which no text replaces"
        raise UsageError(f"{what}\n  fix: without --calibrate")
    batches = choose_usual(task, loaded, split, calibrate) if int8 and not ranges else []
    with open_folder(target) as partial:
        if left is not None:
            write_decision(left, partial)
        remark(f"1: PyTorch answers {counted(len(split.examples), 'row')} of {split.name}")
        before = measure_answers(EagerRuntime(), loaded, task, split, partial)
        remark(f"2: the graph is written for {to} in fp32")
        graph = _export(loaded, task, split)
        card = _describe(loaded, task, graph, to)
        plain = after = _write(graph, card | {"numbers": "fp32"}, partial, loaded, task, split)
        difference = _refuse_difference(before, after)
        if keep is not None:
            remark(f"3: 8 bits are written for {to}, and their answers measured")
            card |= {"numbers": "int8", "ranges": RANGES[to] if ranges is None else TRAINED}
            if ranges is not None:
                rounded = round_model(loaded.model, ranges)
                graph = _export(replace(loaded, model=rounded), task, split)
            after = _write(graph, card, partial, loaded, task, split, batches)
            refuse_loss(task, before, after, keep)
        if task.facts.incomparable is not None:
            card["outside"] = _write_outside(loaded, task, partial)
        facts: dict[str, Any] = {"numbers": "int8" if int8 else "fp32"}
        facts["largest_difference_of_fp32"] = difference
        facts |= describe_scores(task, split, before, after, keep)
        facts |= describe_machine(to, partial, int8=int8)
        if decision is not None and left is not None:
            facts["decided"] = [*describe_export(decision, left)]
        write_text(partial / CONFIG, to_yaml(loaded.config))
        segments = not SEGMENTS.isdisjoint(graph.signature.inputs)
        write_tokenizer(loaded, task, partial, segments=segments)
        write_json(partial / CARD, card | facts)
    remark_scores(task, split, target, before, after, plain)


def open_folded(
    source: Path, plugins: Sequence[str]
) -> tuple[Loaded, LabelDecision | None, LabelDecision | None]:
    """The model with the temperature in its weights, its decision, and what is left of that."""
    opened = open_source(source, plugins=plugins)
    decision = left = read_decision(opened.folder)
    opened = fold_methods(opened)
    if decision is not None:
        opened, left = fold_temperature(opened, decision)
    return load_source(opened), decision, left


def open_graph_task(loaded: Loaded, source: Path) -> Task:
    """The task of a run; UsageError for one that no graph answers."""
    if not loaded.own_task():
        what = f"{source} was not fine-tuned by plmctl, and a graph has the answers to a task"
        fix = spell_line("finetune", "task=<name>", f"checkpoint={source}")
        raise UsageError(f"{what}\n  fix: {fix}, and take its run")
    task = as_task(open_task(loaded.source, None, (), checkpoint=source))
    why, fix = "it asks no labels of the model", TORCH
    if task is not None:
        name, why = task.name, ""
        if task.lengths.written:
            why = f"task={name} writes text, token by token, and a graph computes one pass"
            fix = spell_line("convert", source, "--to", "ctranslate2", "--out", "written")
        elif task.facts.ranks:
            why = f"task={name} ranks a whole corpus, and a graph answers rows"
    if task is None or why:
        raise UsageError(f"{source}: {why}\n  fix: {fix}")
    return task


def read_labelled(
    task: Task, loaded: Loaded, source: Path, data: str | None, fix: str = ONE_FILE
) -> Split:
    """The labelled examples whose scores are compared.

    Args:
        source: The run.
        data: A labelled file; None: the dev split of the task.
        fix: The advice if no example is labelled.

    Raises:
        DataError: No example is labelled, or the file cannot be read.
    """
    try:
        if data is None:
            name, examples = read_examples(task, "dev")
        else:
            name, examples = Path(data).stem, _read_file(task, Path(data))
    except PlmctlError as error:
        first = list_problems(error)
        what = first if data else f"the dev split of {source} cannot be read: {first}"
        raise DataError(what, fix=fix) from error
    unlabelled = next((one for one in examples if not one.is_labelled), None)
    if unlabelled is not None or not examples:
        place = unlabelled.place if unlabelled else data or source
        raise DataError(f"{place}: no label, so the file cannot be scored", fix=fix)
    return inference.encode_split(task, name, examples, loaded.tokenizer)


def _read_file(task: Task, file: Path) -> list[Example]:
    if not file.is_file():
        raise DataError("no such file", file=file)
    return task.splits.read_file(file, task.columns)


def measure_answers(
    runtime: Runtime, loaded: Loaded, task: Task, split: Split, folder: Path
) -> RuntimeScores:
    """The answers to a split, decided by what is kept in a folder."""
    how: Any = {"batch_size": BATCH, "device": torch.device("cpu"), "runtime": runtime}
    runtime.answer(Program(loaded.model, task.logits), _take_first(split))  # it prepares itself
    start = time.perf_counter()
    with torch.no_grad():
        logits, loss = inference.run(loaded.model, task, split.rows, **how)
    seconds = time.perf_counter() - start
    answers = task.predict(logits, split.rows, split.examples)
    answers, _ = decide_by_kept(folder, task, answers)
    metrics = {**task.score(answers), **({} if loss is None else {"loss": loss})}
    guesses, labels = ({str(each.get(key)) for each in answers} for key in ("guess", "gold"))
    same = len(guesses) == 1 < len(labels)
    return RuntimeScores(logits, metrics, len(split.rows.key) / seconds, same)


def _export(loaded: Loaded, task: Task, split: Split) -> TensorGraph:
    """The graph of the answers to a task."""
    return export(Program(loaded.model, task.logits), _take_first(split), name_published)


def _take_first(split: Split) -> Batch:
    """The first batch of a split, which has its longest rows."""
    _, sample = next(inference.list_batches(split.rows, BATCH))
    return sample


@contextmanager
def advise_instead(source: Path, target: Path, plugins: Sequence[str]) -> Iterator[None]:
    """Raise errors whose fix is to stay with PyTorch again, with a whole command as the fix."""

    def find_other() -> str:
        if describe_unexportable(source, source, plugins=plugins):
            return spell_line("eval", f"checkpoint={source}", TORCH)
        return spell_line("convert", source, "--to", "hf", "--out", target)

    with advise(find_other):
        yield


@contextmanager
def advise(find_other: Callable[[], str]) -> Iterator[None]:
    """Raise errors whose fix is to stay with PyTorch again, with another fix."""
    try:
        yield
    except UsageError as error:
        said = str(error)
        if not said.endswith(TORCH):
            raise
        raise UsageError(said.removesuffix(TORCH) + find_other()) from error


def _write(
    graph: TensorGraph,
    card: Mapping[str, Any],
    folder: Path,
    loaded: Loaded,
    task: Task,
    split: Split,
    batches: Sequence[Batch] = (),
) -> RuntimeScores:
    """Write the file of a graph, or round that of the same graph to 8 bits, and measure its
    answers.
    """
    shrinks = card.get("ranges") in RANGES.values()  # the file of 32 bits in the folder
    library = LIBRARIES[card["format"]](int8=shrinks)
    if shrinks:
        library.shrink(folder, graph.signature, batches)
    else:
        library.write(graph, folder)
    answer = library.load(folder, graph.signature)
    check(answer, Program(loaded.model, task.logits), _take_first(split), exact=False)
    return measure_answers(make_runtime(folder, card), loaded, task, split, folder)


def _refuse_difference(before: RuntimeScores, after: RuntimeScores) -> float:
    """The largest difference of logits; UsageError where it is more than rounding."""
    largest = 0.0
    for name, own in before.logits.items():
        found = after.logits[name]
        difference = np.abs(found - own)
        if not (difference <= TOLERANCE * (1 + np.abs(own))).all():
            what = f"the file answers '{name}' otherwise than PyTorch, by {difference.max():.3g}"
            raise UsageError(f"{what}\n  fix: {TORCH}")
        largest = max(largest, float(difference.max(initial=0)))
    return largest


def refuse_loss(task: Task, before: RuntimeScores, after: RuntimeScores, keep: float) -> None:
    """UsageError where 8 bits lose more of the score than allowed."""
    metric = task.metrics[0]
    if before.same:
        what = f"fp32 gives all {len(next(iter(before.logits.values())))} rows one answer"
        remark(f"{what}, so that --keep measures nothing: the model has learned nothing", WARN)
    old, new = before.metrics[metric], after.metrics[metric]
    sign = 1 if task.directions.larger(metric) else -1
    if sign * (old - new) <= (1 - keep) * abs(old):
        return
    what = f"int8 has {metric} {new:.4f}, and fp32 {old:.4f}: more is lost than --keep {keep:g}"
    least = new / old if sign > 0 else 2 - new / old
    lower = f", or --keep {np.floor(least * 1000) / 1000:g}" if old and least > 0 else ""
    raise UsageError(f"{what} allows\n  fix: without --int8{lower}")


def _write_outside(loaded: Loaded, task: Task, folder: Path) -> str:
    """The weights of the head of a task that decides by more than logits, such as a CRF."""
    prefix = f"heads.{task.facts.head}."
    own = {
        name: tensor.detach().contiguous()
        for name, tensor in tensors_of(loaded.model).items()
        if name.startswith(prefix)
    }
    save_file(own, admit(folder / OUTSIDE))
    return OUTSIDE


def _describe(loaded: Loaded, task: Task, graph: TensorGraph, to: str) -> dict[str, Any]:
    """The facts about a graph, for those who feed it."""
    return {
        "about": "a model that plmctl trained, as one graph; padding stands at the end of rows",
        "format": to,
        "task": task.name,
        "labels": task.label_names,
        "inputs": graph.describe_inputs(),
        "outputs": graph.describe_outputs(),
        "names": dict(graph.signature.outputs),
        "anchors": graph.signature.anchors,
        "max_length": task.max_length,
        "positions": loaded.config["position"].get("max_length"),
    }


def describe_scores(
    task: Task, split: Split, before: RuntimeScores, after: RuntimeScores, keep: float | None
) -> dict[str, Any]:
    """The scores of PyTorch in fp32 and of the file, and the rows of a second."""
    metric = task.metrics[0]
    old, new = before.metrics[metric], after.metrics[metric]
    lost = old - new if task.directions.larger(metric) else new - old
    scores = {
        "split": split.name,
        "examples": len(split.examples),
        "metric": metric,
        "before": dict(before.metrics),
        "after": dict(after.metrics),
        "lost": lost,
    }
    rates = {"before": before.rate, "after": after.rate}
    speed = {"rows_per_second": rates, "batch": BATCH, "threads": torch.get_num_threads()}
    more = {} if keep is None else {"keep": keep}
    found: dict[str, Any] = round_floats({"scores": scores | more, "speed": speed}, DIGITS)
    return found


def describe_machine(to: str, folder: Path, *, int8: bool) -> dict[str, Any]:
    """The processor, the versions and the bytes of a file."""
    packages = ("torch", *EXTRAS[to].libraries)
    versions = {"plmctl": __version__} | {name: find_version(name) for name in packages}
    facts: dict[str, Any] = {
        "bytes": {file.name: file.stat().st_size for file in sorted(folder.glob("model.*"))},
        "processor": {"name": describe_cpu(), "flags": list_cpu_flags()},
        "versions": {name: version for name, version in versions.items() if version},
    }
    if int8:
        whole = "8 bits: this processor sums products of 8 bits exactly"
        safe = "7 bits, whose sums do not overflow: this processor has no VNNI"
        facts["weights"] = whole if cpu_sums_int8() else safe
    return facts


def write_tokenizer(
    loaded: Loaded, task: Task, folder: Path, *, framed: bool = True, segments: bool
) -> None:
    """The tokenizer for plmctl, and for other tools in Hugging Face's layout, which gives the
    segments that a graph reads.
    """
    loaded.tokenizer.save(folder / "tokenizer")
    template = (loaded.config.get("format") or {}).get("source_template")
    try:
        loaded.tokenizer.export_hf(
            folder,
            model_max_length=task.max_length,
            framed=framed,
            segments=segments,
            single=template,
        )
    except UsageError as error:
        remark(f"only plmctl reads this tokenizer: {list_problems(error)}")


def remark_scores(
    task: Task,
    split: Split,
    target: Path,
    before: RuntimeScores,
    after: RuntimeScores,
    plain: RuntimeScores,
) -> None:
    """Print the score and the speed of the file, of PyTorch, and of fp32 where it has 8 bits.

    Args:
        split: The rows that are scored.
        before: The answers of PyTorch.
        after: The answers of the file.
        plain: The answers of the file in fp32; `after` where it has no 8 bits.
    """
    metric = task.metrics[0]
    scores = f"{metric} {after.metrics[metric]:.4f} on {split.name}"
    rates = f"{after.rate:,.0f} rows/s, PyTorch {before.rate:,.0f}"
    if plain is not after:
        slower = ": 8 bits are slower here than 32" if after.rate < plain.rate else ""
        rates += f", the file in fp32 {plain.rate:,.0f}{slower}"
    remark(f"{name_finished(target)}: {scores}, PyTorch {before.metrics[metric]:.4f}; {rates}")
