"""Side tasks, which are trained with the run's own task: the settings that each decides, and the
model that all of them share.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from plmctl.artifacts.loading import BESIDE
from plmctl.config.build import build, class_of
from plmctl.config.compose import attempt
from plmctl.config.saved import write_spec
from plmctl.config.schema import OF_THE_MODEL, Finetune
from plmctl.config.spec import Provenance, key_of, thaw
from plmctl.core.errors import (
    ConfigError,
    DataError,
    PlmctlError,
    UsageError,
    find_meant,
    flatten,
    nearest,
    raise_all,
)
from plmctl.core.spelling import spell
from plmctl.data.token_batches import count_rows
from plmctl.heads.features import BEFORE_HEADS
from plmctl.models.base import Model
from plmctl.runs.adapt import complete, keep_dropout
from plmctl.runs.parents import build_task, check_splits, shorten_rows
from plmctl.runs.row_heads import decides_about_rows
from plmctl.runs.task_fit import fit_language_heads, fit_task
from plmctl.storage.gate import admit
from plmctl.tasks import inference
from plmctl.tasks.mixing.base import Mixing
from plmctl.tasks.several import MAIN, SideTask, side_name
from plmctl.tasks.task import Task
from plmctl.text.tokenizer import Tokenizer
from plmctl.training import checkpoint
from plmctl.training.checkpoint import Snapshot, tensors_of
from plmctl.training.progress import Progress

ASKED = ("task", "path", "overrides", "weight")  # the keys of a side task that a user states
OF_A_TASK = ("task", "heads")  # the settings that its overrides may change
# the settings that all tasks share, besides the model itself
OF_THE_RUN = (
    *("checkpoint", "checkpoint_into", "kept_layers", "peft", "kernel"),
    *("train", "run", "seed"),
)


def with_side_tasks(spec: Finetune, task: Task) -> Finetune:
    """The spec fitted to its task, with all settings that its side tasks decide: their own, their
    heads, positions for their rows.

    Raises:
        UsageError: Everything that is wrong with any of them, together.
    """
    if not spec.beside:
        _refuse_mixing(spec)
        return fit_task(spec, task)
    if spec.train.frozen_outputs != "batch":
        allowed = "batch with side tasks: outputs are stored by the rows of one task"
        fix = "train.frozen_outputs=batch"
        raise ConfigError("train.frozen_outputs", spec.train.frozen_outputs, allowed, fix=fix)
    if spec.checkpoint_into:
        allowed = "null with side tasks: they start from the same whole model"
        raise ConfigError("checkpoint_into", spec.checkpoint_into, allowed, fix="leave beside out")
    errors: list[PlmctlError] = []
    asked: dict[str, tuple[Finetune, Task]] = {}
    for name, node in spec.beside.items():
        try:
            _check_name(name, spec)
            side = _read(name, node, spec)
            side_task = build_task(side)
            side = fit_language_heads(side, side_task)
            side, side_task = shorten_rows(side, side_task)
            check_splits(side, side_task)
            asked[name] = side, side_task
        except PlmctlError as error:
            errors += [_at(name, inner) for inner in flatten(error)]
    raise_all(errors)
    longest = max(each.lengths.longest for _, each in asked.values())
    fitted = fit_task(spec, task, longest=longest)
    for name, (side, side_task) in asked.items():
        own = fit_task(side, side_task, longest=max(longest, task.lengths.longest))
        _refuse_another_model(name, fitted, own, task, side_task)
        fitted = _join(name, fitted, own, weight=spec.beside[name].get("weight", 1.0))
    return fitted


def open_side_tasks(spec: Finetune) -> list[SideTask]:
    """The side tasks of a spec that `with_side_tasks` has decided."""
    return [
        SideTask(name, build_task(_alone(spec, name)), dict(node["heads"]), node["weight"])
        for name, node in spec.beside.items()
    ]


def mixing_of(spec: Finetune) -> Mixing:
    """How often each task is trained."""
    return cast(Mixing, build(spec.mixing, {}, spec.plugins, path="mixing"))


def choose_metric(spec: Finetune, task: Task) -> tuple[str, bool]:
    """(what chooses the checkpoint, by default the first metric of the run's own task; whether a
    larger value is better). Metrics of a side task have its name before them: `rte/accuracy`.

    Raises:
        ConfigError: None of the tasks has it.
    """
    known = {name: (task, name) for name in (*task.metrics, "loss")}
    for side in open_side_tasks(spec):
        if "dev" in side.task.splits.devs:
            own = (*side.task.metrics, "loss")
            known |= {f"{side.name}/{name}": (side.task, name) for name in own}
    asked = spec.train.best_metric or task.metrics[0]
    if asked not in known:
        allowed = f"one of {', '.join(known)}, what is scored here{nearest(asked, known)}"
        fix = f"train.best_metric={find_meant(asked, known) or task.metrics[0]}"
        raise ConfigError("train.best_metric", asked, allowed, fix=fix)
    owner, metric = known[asked]
    return asked, owner.directions.larger(metric)


def count_updates(spec: Finetune, examples: int, longest: int) -> int:
    """The updates of an epoch, where rows are neither grouped nor left out; with
    `train.batch_tokens`, at most.

    Args:
        examples: The training examples of the run's own task.
        longest: The tokens of its longest sequence.
    """
    size, tokens = spec.train.batch_size, spec.train.batch_tokens
    updates = {MAIN: -(-examples // count_rows(size, tokens, longest))}
    for side in open_side_tasks(spec):
        read = len(inference.take_share(side.task.read("train"), spec.train.share))
        rows = count_rows(size, tokens, max(side.task.lengths.sides))
        updates[side.name] = -(-read // rows)
    return sum(mixing_of(spec).share_out(updates).values()) if spec.beside else updates[MAIN]


def save_side_tasks(
    spec: Finetune, model: Model, tokenizer: Tokenizer, run: Path
) -> dict[str, Path]:
    """Write `<run>/beside/<task>`, a checkpoint of the model with the heads of that task alone;
    returns them by task.
    """
    folders: dict[str, Path] = {}
    for side in open_side_tasks(spec):
        folder = run / BESIDE / side.name
        admit(folder).mkdir(parents=True, exist_ok=True)
        write_spec(_alone(spec, side.name), folder)
        tokenizer.save(folder / "tokenizer")
        trainer = {"progress": Progress().to_json()}
        checkpoint.write(Snapshot(tensors_of(side.view(model)), {}, {}, {}, trainer), folder)
        folders[side.name] = folder
    return folders


def _alone(spec: Finetune, name: str) -> Finetune:
    """The spec of one side task, as if it were the only one."""
    node = spec.beside[name]
    heads = {own: thaw(spec.heads[whole]) for own, whole in node["heads"].items()}
    return spec.replace({"task": node["task"], "heads": heads, "beside": {}})


def _check_name(name: str, spec: Finetune) -> None:
    if not name.isidentifier() or name == MAIN:
        allowed = f"a name of letters, digits and _ for the heads of this task, not {MAIN}"
        raise ConfigError(f"beside.{name}", ..., allowed)
    clash = [head for head in spec.heads if head.startswith(f"{name}_")]
    if clash:
        allowed = f"another name: the model has a head '{clash[0]}' already"
        raise ConfigError(f"beside.{name}", ..., allowed)


def _read(name: str, node: Mapping[str, Any], spec: Finetune) -> Finetune:
    """The spec of a side task, as it would be fine-tuned alone on the same model."""
    for key in node:
        if key not in ASKED:
            known = f"one of {', '.join(ASKED)}{nearest(key, ASKED)}"
            raise ConfigError(key, node[key], known)
    words = [f"task={node['task']}"]
    words += [f"task.path={spell(node['path'])}"] if node.get("path") is not None else []
    for word in node.get("overrides", ()):
        if key_of(word).partition(".")[0] not in OF_A_TASK:
            allowed = "settings of the task; those of the training are the run's own"
            fix = f"{word} as a setting of the run"
            raise ConfigError("overrides", word, allowed, fix=fix)
        words.append(word)
    given = spec.provenance
    asked = Provenance("finetune", None, tuple(words), given.config_dirs, given.plugins)
    composition = attempt(asked)
    errors = [error for error in composition.errors if not _is_of_run(error)]
    raise_all(errors)
    side: Finetune = composition.spec  # type: ignore[assignment]
    heads = {key: node for key, node in side.heads.items() if key not in BEFORE_HEADS}
    heads |= {key: node for key, node in spec.heads.items() if key in BEFORE_HEADS}
    nodes = {key: spec.get(key) for key in (*OF_THE_MODEL, *OF_THE_RUN, "origin")}
    side = side.replace({**nodes, "heads": heads})
    if any(decides_about_rows(side, node) for node in heads.values()):
        side = side.replace({"row_pooling": spec.row_pooling})
    return keep_dropout(spec, complete(side))


def _is_of_run(error: PlmctlError) -> bool:
    """Whether it is about what the run says for all of its tasks: the checkpoint, above all."""
    return isinstance(error, ConfigError) and error.path.partition(".")[0] not in OF_A_TASK


def _join(name: str, spec: Finetune, own: Finetune, *, weight: float) -> Finetune:
    """The spec with the heads of a side task; heads of language models, and parts before heads, are
    shared.
    """
    heads, names = dict(spec.heads), dict[str, str]()
    for head, node in own.heads.items():
        part: Any = class_of(node, spec.plugins)
        mine = getattr(part, "of_task", False)
        whole = side_name(name, head) if mine else head
        if not mine and head in heads and heads[head] != node:
            allowed = f"tasks that share a model share its {head}; here it has other settings"
            raise UsageError(f"beside.{name}: {allowed}")
        heads[whole], names[head] = node, whole
    decided = {"task": own.task, "heads": names, "weight": weight}
    return spec.replace({"heads": heads, f"beside.{name}": decided})


def _refuse_another_model(
    name: str, spec: Finetune, own: Finetune, task: Task, side_task: Task
) -> None:
    """UsageError if a side task needs another network than the run's own task."""
    for slot in ("model", "pattern", "position"):
        if _without_classifier(own[slot]) != _without_classifier(spec[slot]):
            raise UsageError(
                f"beside.{name}: {side_task.name} and {task.name} need the model's {slot} in two"
                " ways, so they cannot share it\n  fix: fine-tune one after the other"
            )
    if side_task.requires.new_tokens > task.requires.new_tokens:
        raise UsageError(
            f"beside.{name}: {side_task.name} adds {side_task.requires.new_tokens} tokens to the"
            f" vocabulary, {task.name} adds {task.requires.new_tokens}"
            f"\n  fix: make {side_task.name} the task, and {task.name} its side task"
        )


def _without_classifier(node: Any) -> dict[str, Any]:
    """The settings of a part, less those by which heads about rows are made."""
    return {key: value for key, value in thaw(node).items() if key != "classifier"}


def _refuse_mixing(spec: Finetune) -> None:
    """ConfigError for a choice of `mixing` without other tasks."""
    for word in spec.provenance.overrides:
        if key_of(word).partition(".")[0] == "mixing":
            allowed = "without effect: the run has no side task"
            fix = "beside.sst2={task: sst2, path: glue/SST-2}, or leave it out"
            raise ConfigError(key_of(word), word.partition("=")[2], allowed, fix=fix)


def _at(name: str, error: PlmctlError) -> PlmctlError:
    """The error of a side task, with its name, and with fixes that are settings of it."""
    kind = DataError if isinstance(error, DataError) else UsageError
    text = re.sub(r"(?<=fix: )task=(\S+)", rf"beside.{name}.task=\1", str(error))
    text = re.sub(r"(?<=fix: )task\.path=", f"beside.{name}.path=", text)
    text = re.sub(r"(?<=fix: )(task\.\S+=\S+)", rf"'beside.{name}.overrides=[\1]'", text)
    return kind(f"beside.{name}: {text}")
