"""The models of a server, by name, and what each can do."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from plmctl.artifacts.deployed import load_to_answer
from plmctl.artifacts.label_rows import count_rows, labels_of
from plmctl.artifacts.loading import Loaded, Source, find_base
from plmctl.config.spec import Provenance
from plmctl.core.errors import DataError, UsageError, nearest
from plmctl.core.spelling import spell
from plmctl.generation.writer import writer_of
from plmctl.runs.deciding import decide
from plmctl.runtime.base import Runtime
from plmctl.serve.errors import Refusal
from plmctl.serve.labels import LabelEngine, LinearEngine, open_labels, set_least, share_labels
from plmctl.serve.pairs import PairEngine
from plmctl.serve.prompts import PromptEngines
from plmctl.serve.vectors import VectorEngine
from plmctl.tasks.linear_model import is_linear
from plmctl.tasks.task import Task, as_task
from plmctl.training.checkpoint import read_base
from plmctl.training.device.precision import Precision
from plmctl.use.asked_task import open_task
from plmctl.use.labeller import PUBLISHED, find_published, open_linear
from plmctl.use.sentence_vectors import choose_pooling
from plmctl.use.shared_base import load_adapters

Found = TypeVar("Found")


@dataclass(frozen=True)
class Served:
    """A model of a server, with the engines that it has."""

    name: str
    source: Source
    task: Task | None = None
    labels: LabelEngine | None = None
    vectors: VectorEngine | None = None
    prompts: PromptEngines | None = None
    pairs: PairEngine | None = None
    path: str = ""  # as the command names it

    @property
    def reads_pairs(self) -> bool:
        """Whether the task of the model reads two texts."""
        return self.task is not None and self.task.columns.get("text2") is not None

    @property
    def longest(self) -> int | None:
        """Tokens of a text at most, special ones included; None: any number."""
        return self.max_length if self.vectors is None else self.vectors.longest

    @property
    def max_length(self) -> int | None:
        """Tokens of its task, to which a labelled text is cut; None where none is."""
        if self.labels is not None:
            return self.labels.find_longest(self.name)
        return None if self.task is None else self.task.max_length

    def describe_lengths(self) -> dict[str, int | None]:
        """The most tokens of a text, and those of its task."""
        own = {} if self.max_length is None else {"max_length": self.max_length}
        return {"max_model_len": self.longest, **own}

    def warm_up(self) -> None:
        """Label a text before the first request does: a runtime exports, measures or compiles the
        model then, which takes longer than clients wait. A task of other columns has no such text.
        """
        if self.labels is None:
            return
        try:
            items = self.labels.read(self.name, [("a", "b") if self.reads_pairs else "a"])
        except DataError:
            return
        self.labels.answer([item.content for item in items])

    def list_abilities(self) -> list[str]:
        """The abilities of the model, in words."""
        found = [] if self.task is None else [f"task {self.task.name}"]
        if self.vectors is not None:
            found.append(f"vectors ({self.vectors.pooling.words})")
        if self.prompts is not None:
            found.append("fills masks" if self.prompts.fills else "writes")
        return found


class Models:
    """The models of a server. For a request without a name, the first answers that can."""

    def __init__(self, served: Sequence[Served]) -> None:
        self.by_name = {each.name: each for each in served}

    def __iter__(self) -> Iterator[Served]:
        return iter(self.by_name.values())

    def find(
        self, name: str | None, what: str, *kinds: Callable[[Served], Found | None]
    ) -> tuple[Served, Found]:
        """(a model, its engine of the first kind that a model has).

        Args:
            name: The name of the model; None: the first with such an engine.
            what: The ability as a verb, for the message: "label texts".
            kinds: The engine of a model, or None; the best kind first.

        Raises:
            Refusal: There is no such model, or it lacks the ability.
        """
        if name is not None and name not in self.by_name:
            known = f"{nearest(name, self.by_name)}: there are {', '.join(self.by_name)}"
            raise Refusal(404, f"no model '{name}'{known}")
        for kind in kinds:
            for each in self if name is None else [self.by_name[name]]:
                if (engine := kind(each)) is not None:
                    return each, engine
        has = "; ".join(f"{each.name}: {', '.join(each.list_abilities())}" for each in self)
        who = "no model here can" if name is None else f"the model {name} cannot"
        raise Refusal(424, f"{who} {what} ({has})")


def open_models(
    checkpoints: Sequence[str],
    *,
    device: str,
    precision: str,
    pooling: str | None,
    runtime: Any,
    rows: int,
    plugins: Sequence[str],
    unsure_below: float | None = None,
) -> Models:
    """The models of several checkpoints. Those with adapters of one base share it.

    Args:
        checkpoints: Runs, checkpoints, linear models or folders of Hugging Face.
        device: The name of a device.
        precision: The name of the numbers to compute with.
        pooling: The pooling of vectors; None: the trained one, else the mean.
        runtime: Makes the runtime of a model from its precision and `loaded`, the model.
        rows: Rows that a model computes at the same time.
        plugins: The packages outside plmctl that the models may be made of.
        unsure_below: The least probability of an answer; None: the one of each checkpoint.
    """
    names = name_models(checkpoints)
    named = dict(zip(names, checkpoints, strict=True))
    folders = {name: Path(path).expanduser() for name, path in named.items()}
    served: dict[str, Served] = {
        name: _open_linear(name, folder, plugins, unsure_below)
        for name, folder in folders.items()
        if is_linear(folder)
    }
    loaded: dict[str, tuple[Loaded, Precision]] = {
        name: load_to_answer(path, device, precision, plugins)
        for name, path in named.items()
        if name not in served
    }
    for group in _list_shared({name: own for name, (own, _) in loaded.items()}):
        chosen = loaded[group[0]][1]
        paths = {name: named[name] for name in group}
        base = load_adapters(paths, plugins=plugins, device=chosen.device)
        engine = share_labels(base, precision=chosen, rows=rows, least=unsure_below)
        for name in group:
            own = base.learned[name]
            served[name] = Served(name, own.source, own.task, engine)
    for name, (one, chosen) in loaded.items():
        if name not in served:
            own_runtime = runtime(chosen, loaded=one)
            how: Any = {"precision": chosen, "rows": rows, "least": unsure_below}
            served[name] = _open_model(name, one, pooling, own_runtime, **how)
    return Models([replace(served[name], path=named[name]) for name in names])


def name_models(checkpoints: Sequence[str]) -> list[str]:
    """The last part of each path. Paths of an equal name have parts before it, too, as many as make
    them different; the others keep theirs.
    """
    parts = [Path(os.path.normpath(path)).parts for path in checkpoints]
    sizes = [1] * len(parts)
    while True:
        names = [
            "-".join(part.strip("/") for part in own[-size:])
            for own, size in zip(parts, sizes, strict=True)
        ]
        equal = [number for number, name in enumerate(names) if names.count(name) > 1]
        if not equal:
            return names
        if all(sizes[number] >= len(parts[number]) for number in equal):
            raise UsageError(f"a checkpoint is named twice: {', '.join(checkpoints)}")
        for number in equal:
            sizes[number] += 1


def _list_shared(loaded: Mapping[str, Loaded]) -> list[list[str]]:
    """The names of the models whose adapters have one base, two or more each."""
    groups: dict[Path, list[str]] = {}
    for name, own in loaded.items():
        base = read_base(own.source.folder)
        if base is not None and own.own_task():
            groups.setdefault(find_base(own.source.folder, base).resolve(), []).append(name)
    return [group for group in groups.values() if len(group) > 1]


def _open_linear(name: str, folder: Path, plugins: Sequence[str], least: float | None) -> Served:
    own = open_linear(folder, plugins)
    own = replace(own, decision=set_least(own.decision, least))
    return Served(name, own.source, own.task, LinearEngine(name, own))


def _open_model(
    name: str,
    loaded: Loaded,
    pooling: str | None,
    runtime: Runtime,
    *,
    precision: Precision,
    rows: int,
    least: float | None,
) -> Served:
    """A model with all that it can do."""
    task = labels = pairs = None
    how: Any = {"precision": precision, "runtime": runtime, "rows": rows}
    if loaded.own_task():
        task = as_task(open_task(loaded.source, None, (), checkpoint=name))
    elif head := find_published(loaded.config):
        task = _open_published(loaded.source, head)
    if task is not None and not task.facts.ranks:
        labels = open_labels(loaded, task, name, least=least, **how)
    if task is not None and task.facts.scores_pairs:
        pairs = PairEngine(loaded, task, **how)
    stored = loaded.runtime is not None  # a folder without weights for PyTorch
    if stored and writer_of(loaded.model) is None:
        return Served(name, loaded.source, task, labels, pairs=pairs)
    try:
        prompts = PromptEngines(loaded, runtime, precision=precision)
    except UsageError:  # it neither fills masks nor writes
        prompts = None
    if stored:
        return Served(name, loaded.source, task, labels, None, prompts, pairs)
    chosen = choose_pooling(loaded, pooling, path="pooling")
    vectors = VectorEngine(loaded, chosen, **how)
    return Served(name, loaded.source, task, labels, vectors, prompts, pairs)


def _open_published(source: Source, head: str) -> Task | None:
    """The task of a published model with this head. Labels without names are LABEL_0, LABEL_1, as
    in transformers.
    """
    words = [f"checkpoint={spell(source.folder)}", f"task={PUBLISHED[head]}"]
    if labels_of(source.config, source.plugins).get(head, ()) is None:
        names = [f"LABEL_{row}" for row in range(count_rows(source.config, head) or 0)]
        words.append(f"task.label_names={spell(names)}")
    given = Provenance("eval", overrides=tuple(words), plugins=tuple(source.plugins))
    spec: Any = decide(given)
    return as_task(open_task(source, spec.task, given.keys, checkpoint=source.folder))
