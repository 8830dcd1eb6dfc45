"""The models, tokenizers, tokens and task files that the settings of a run name, each opened for a
check.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from plmctl.artifacts.assemble import without_weights
from plmctl.artifacts.loading import is_deployed, open_source
from plmctl.artifacts.model_facts import reading
from plmctl.config.asked import find_ids
from plmctl.config.build import MISSING, build, class_of, plain
from plmctl.config.headers import naming_source, source_of
from plmctl.config.model_settings import model_settings
from plmctl.config.references import at_origin
from plmctl.config.schema import Finetune, GraphData, Pretrain
from plmctl.config.spec import RunSpec, all_parts_in, thaw
from plmctl.config.texts import sources
from plmctl.config.walks import select
from plmctl.core.errors import ConfigError, PlmctlError, UsageError, collect, flatten, raise_all
from plmctl.core.locate import parameters
from plmctl.data.located import locate
from plmctl.data.shards import is_tokens, read_manifest
from plmctl.inputs.sharded import refuse_small_cache
from plmctl.inputs.tokenize import find_sources
from plmctl.knowledge.vector_files import find_static
from plmctl.knowledge.vectors import find_vectors
from plmctl.runs.adapt import complete
from plmctl.runs.contract.alone import find_wrong_numbers
from plmctl.runs.contract.stand_in import TINY
from plmctl.runs.task_fit import fit_lengths
from plmctl.tasks import inference
from plmctl.tasks.linear_model import is_linear
from plmctl.tasks.record import Reader
from plmctl.tasks.task import Task, as_task
from plmctl.text.tokenizer import Tokenizer

BY_GRAPH = ("eval", "predict", "generate", "serve")  # commands that take an exported folder
BY_WORDS = ("eval", "predict", "serve")  # commands that take a linear model of words
BY_VECTORS = ("eval", "embed")  # commands that take vectors of words or of a graph
MODELS = ("init", "checkpoint", "teacher")  # settings that name trained models
OF_TASKS = ("model", "pattern", "size", "checkpoint")  # slots that decide how one is read
OF_VOCABULARY = ("format", "noise", "eval.noise")  # parts that are given a vocabulary alone
# parts that are given the numbers of `size`
OF_SIZE = ("pattern", "position", "kernel", "first_vectors")

ANY_FILES = "a folder, one file, or the files of its splits, as in task.path=[train.tsv,dev.tsv]"


def build_task(spec: Finetune) -> Task:
    """The task of a fine-tuning run, which is one that can be trained on."""
    facts = reading(model_settings(spec), spec.plugins)
    task = as_task(build(spec.task, facts, spec.plugins, path="task"))
    if task is None:
        name = spec.task.get("name") or spec.task["_target_"]
        fix = "plmctl help task, which lists those with labels"
        raise UsageError(f"task={name} is for plmctl eval, it has nothing to train\n  fix: {fix}")
    if not task.metrics:
        allowed = "one at least, by which the best checkpoint is chosen"
        raise ConfigError("task.metrics", [], allowed)
    task.splits.name_columns(find_ids(spec.provenance))
    return task


def shorten_rows(spec: Finetune, task: Task) -> tuple[Finetune, Task]:
    """The spec and its task with rows that the checkpoint has positions for."""
    shorter = fit_lengths(spec, task)
    if not shorter:
        return spec, task
    spec = spec.replace(shorter)
    return spec, build_task(spec)


def check_splits(spec: Finetune, task: Task) -> None:
    """Raise what is wrong with files and labels, before anything is written."""
    with naming_source("task", spec.task.get("name"), spec.provenance.config_dirs):
        inference.check_splits(task)
    if task.facts.shows_train and spec.train.share != 1:
        allowed = "1, since rows show labels of all training examples"
        fix = "train.share=1, or task.demonstrations=0"
        raise ConfigError("train.share", spec.train.share, allowed, fix=fix)


def find_wrong_parts(spec: RunSpec, known: Sequence[PlmctlError]) -> list[PlmctlError]:
    """The mistakes that the parts of a spec find, each built by itself; parts with `known` errors
    are left out.
    """
    wrong = {error.path for error in known if isinstance(error, ConfigError)}

    def is_wrong(path: str) -> bool:
        return any(other == path or other.startswith(f"{path}.") for other in wrong)

    config: dict[str, Any] = thaw(spec)
    given: dict[str, dict[str, Any]] = {path: {"vocab": TINY} for path in OF_VOCABULARY}
    if not is_wrong("size"):
        sizes = {"vocab_size": TINY.size, "max_length": 8, **(config.get("size") or {})}
        given |= {path: sizes for path in OF_SIZE}
    errors: list[PlmctlError] = []
    for path, values in given.items():
        node = None if is_wrong(path) else select(config, path)
        if isinstance(node, Mapping):
            with collect(errors), without_weights():
                build(node, values, spec.plugins, path=path)
    whole = {slot: config.get(slot) for slot in ("optim", "schedule") if not is_wrong(slot)}
    return [*errors, *find_wrong_numbers(whole, spec.plugins)]


def check_parents(spec: RunSpec, known: list[PlmctlError]) -> list[PlmctlError]:
    """`known` problems of a spec, problems of its parts alone, and problems of everything that it
    starts from. Each is reported once, at the setting where it is written.

    Task files are read unless a setting that decides how is among the known ones. The task
    that a missing model would bring has no settings here, so those given are not looked at.
    """
    lost: list[PlmctlError] = []
    for open_parent in _parents(spec):
        with collect(lost):
            open_parent()
    if lost or spec.get("checkpoint") == MISSING:
        known = [error for error in known if not _is_brought(error, spec)]
    errors = [*known, *find_wrong_parts(spec, known), *lost]
    with collect(errors):
        check_opened(spec)
    paths = {error.path for error in known if isinstance(error, ConfigError)}
    slots = {path.partition(".")[0] for path in paths}
    if "data" not in slots:
        with collect(errors):
            check_texts(spec)
    if isinstance(spec, Finetune) and "task" not in paths and slots.isdisjoint(OF_TASKS):
        errors += _find_wrong_task(spec)
    return at_origin(errors, spec.provenance.written)


def _is_brought(error: PlmctlError, spec: RunSpec) -> bool:
    """Whether an error is about a setting of the task that the trained model brings."""
    path = error.path if isinstance(error, ConfigError) else ""
    return path.startswith("task.") and "task" in spec and spec["task"] is None


def _find_wrong_task(spec: Finetune) -> list[PlmctlError]:
    """Mistakes in a task and its files, for the model of the checkpoint. If that cannot be opened,
    the abilities of the model are not checked.
    """
    errors: list[PlmctlError] = []
    completed, task = None, None
    with contextlib.suppress(PlmctlError):
        completed = complete(spec)
    with collect(errors):
        task = build_task(completed or spec)
    with collect(errors):
        _check_files(spec) if task is None else check_splits(spec, task)
    if completed:
        return errors
    return [e for e in errors if not (isinstance(e, ConfigError) and e.path == "model")]


def _check_files(spec: Finetune) -> None:
    """Raise what is wrong with the files of a task that itself cannot be made, where they can be
    read without it; of files that nobody gave, where to get them.
    """
    own = spec.task
    if own.get("path") == MISSING:
        source = source_of("task", own.get("name"), spec.provenance.config_dirs) or ANY_FILES
        fix = f"task.path=...\n  data: {source}"
        raise ConfigError("task.path", ..., "must be given", fix=fix)
    try:
        node, path, columns = (thaw(own[name]) for name in ("reader", "path", "columns"))
        if not (isinstance(node, Mapping) and isinstance(columns, Mapping)):
            return  # the task has this problem already
        reader: Reader = build(node, plugins=spec.plugins, path="task.reader")
    except (PlmctlError, KeyError):
        return
    with naming_source("task", own.get("name"), spec.provenance.config_dirs):
        for split in ("train", *(["dev"] if reader.has(path, "dev") else [])):
            reader.read(path, split, columns)


@contextlib.contextmanager
def checking_parents(spec: RunSpec) -> Iterator[None]:
    """Errors inside are raised together with all mistakes in the spec's parents."""
    try:
        yield
    except PlmctlError as error:
        raise_all(check_parents(spec, flatten(error)))


def _parents(spec: RunSpec) -> Iterator[Callable[[], object]]:
    """For each model, tokenizer and token folder that a spec names, what opens it."""
    for key in MODELS:
        for path in _texts(spec.get(key)):
            if spec.provenance.verb in BY_GRAPH and is_deployed(Path(path).expanduser()):
                continue
            if spec.provenance.verb in BY_WORDS and is_linear(Path(path).expanduser()):
                continue
            if spec.provenance.verb in BY_VECTORS and (find_static(path) or find_vectors(path)):
                continue
            yield partial(open_source, path, plugins=spec.plugins)
    yield from (partial(Tokenizer.load, path) for path in _texts(spec.select("tokenizer.path")))


def check_opened(spec: RunSpec) -> None:
    """Raise for every missing file that a part of a spec will open (its class names it in `opens`).

    If a model starts from another one, tables that a lexicon fills come with the weights.
    """
    errors: list[PlmctlError] = []
    begun = spec.provenance.resume or spec.get("init") or spec.get("checkpoint")
    for path, node in all_parts_in(spec):
        try:
            part = class_of(node, spec.plugins)
        except ValueError:
            continue  # the check of its slot reports it
        is_module = isinstance(part, type) and issubclass(part, nn.Module)
        if begun and path.startswith("model.") and not is_module:
            continue
        known = parameters(part)
        for name, confirm in getattr(part, "opens", {}).items():
            given = node.get(name, known[name].default if name in known else MISSING)
            if given != MISSING:
                with collect(errors):
                    confirm(given)
    raise_all(errors)


def check_texts(spec: RunSpec) -> None:
    """Raise for a missing text, or a missing folder of tokens, that a run reads."""
    errors: list[PlmctlError] = []
    for path, target in _list_read(spec):
        with collect(errors):
            if is_tokens(path):
                refuse_small_cache(
                    read_manifest(locate(path)), path, spec.select("data.cache_size")
                )
            else:
                read = find_sources(plain(spec["data"]), path, target=target)
                for source in filter(None, read):
                    source.check_beginning()
    raise_all(errors)


def _list_read(spec: RunSpec) -> list[tuple[Any, Any]]:
    """The paths of the texts that a run reads, for its corpora or its tokenizer, each with the path
    of its parallel lines. None: the built-in text.
    """
    if isinstance(spec, Pretrain):
        corpora = [node["corpora"] for node in sources(spec).values()]
        return [
            (corpus.get("path"), corpus.get("target_path"))
            for parts in corpora
            for corpus in parts.values()
        ]
    if isinstance(spec.get("data"), GraphData):  # its own reader looks at its triples
        return []
    given = isinstance(spec, Finetune) and (spec.checkpoint or spec.select("tokenizer.path"))
    read = (plain(spec.select("data.path")), plain(spec.select("data.target_path")))
    return [] if given or "data" not in spec else [read]


def _texts(value: Any) -> list[str]:
    """A text, or those of a list; none where there is something else, or nothing was given."""
    values = value if isinstance(value, tuple) else (value,)
    return [text for text in values if isinstance(text, str) and text != MISSING]
