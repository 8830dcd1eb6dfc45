"""The data, the loss and the scores of a fine-tuning and of its side tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from plmctl.core.batch import Rows
from plmctl.core.rounding import round_floats
from plmctl.models.base import Model
from plmctl.objectives.base import Objective
from plmctl.objectives.mix import Entry, Mix
from plmctl.runs.session import Session
from plmctl.runs.side_tasks import mixing_of, open_side_tasks, save_side_tasks
from plmctl.tasks import inference
from plmctl.tasks.batches import Batches
from plmctl.tasks.capabilities import noise_of
from plmctl.tasks.inference import Split
from plmctl.tasks.predictions import write_predictions
from plmctl.tasks.several import MAIN, SideLoss, SideTask, TaskBatches
from plmctl.tasks.task import Task
from plmctl.text.tokenizer import Tokenizer
from plmctl.training.device.precision import Precision, choose
from plmctl.use.predict import predict

Scores = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class SideData:
    """A side task with its splits and its batches."""

    side: SideTask
    devs: Mapping[str, Split]
    batches: Batches


def encode_splits(session: Session, task: Task, tokenizer: Tokenizer) -> dict[str, Split]:
    """train, or the share of it that is trained on, and every existing dev split, encoded;
    `fit_labels` has seen all of train.
    """
    task.fit_labels(train := task.read("train"))
    examples = {"train": inference.take_share(train, session.spec.train.share)}
    examples |= {name: task.read(name) for name in task.splits.devs}
    fix = "a checkpoint whose tokenizer knows this text"
    if not session.spec.checkpoint:
        fix += "; or more tokenizer.vocab_size, or tokenizer=byte_bpe"
    return {
        name: inference.encode_split(task, name, own, tokenizer, fix=fix)
        for name, own in examples.items()
    }


def make_batches(
    session: Session,
    task: Task,
    tokenizer: Tokenizer,
    rows: Rows,
    before_epoch: Callable[[int], None] = lambda epoch: None,
) -> Batches:
    """The training batches of one task; `before_epoch` is called with the number of each epoch."""
    train, world = session.spec.train, session.world
    return Batches(
        rows,
        batch_size=train.batch_size,
        batch_tokens=train.batch_tokens,
        micro_batch_size=train.micro_batch_size,
        seed=session.spec.seed,
        world=world.size,
        rank=world.rank,
        noise=noise_of(task, tokenizer.vocab),
        before_epoch=before_epoch,
    )


def read_sides(session: Session, tokenizer: Tokenizer) -> list[SideData]:
    """Every side task, read and encoded; a line on each."""
    sides: list[SideData] = []
    for side in open_side_tasks(session.spec):
        data = encode_splits(session, side.task, tokenizer)
        batches = make_batches(session, side.task, tokenizer, data["train"].rows)
        counts = [f"{len(split.examples)} examples of {name}" for name, split in data.items()]
        cut = inference.describe_truncation(data["train"].rows)
        parts = [*counts, *([cut] if cut else [])]
        session.say(f"beside {side.name} ({side.task.name}): {'; '.join(parts)}")
        devs = {name: split for name, split in data.items() if name != "train"}
        sides.append(SideData(side, devs, batches))
    return sides


def mix_batches(
    session: Session, batches: Batches, sides: Sequence[SideData]
) -> Batches | TaskBatches:
    """The batches of all tasks in turn; a line on how often each has its turn."""
    if not sides:
        return batches
    members = {MAIN: batches} | {each.side.name: each.batches for each in sides}
    mixed = TaskBatches(members, mixing_of(session.spec), seed=session.spec.seed)
    own = session.spec.task["name"]
    shares = (f"{count} of {own if name == MAIN else name}" for name, count in mixed.shares.items())
    session.say(f"updates of an epoch: {', '.join(shares)}")
    return mixed


def mix_losses(objective: Objective, sides: Sequence[SideData]) -> Objective:
    """The loss of each update is that of the task whose batch it reads."""
    if not sides:
        return objective
    entries = {MAIN: Entry(objective, on=MAIN)}
    for each in sides:
        side = each.side
        entries[side.name] = Entry(SideLoss(side), weight=side.weight, on=side.name)
    return Mix(entries)


def is_percent(metric: str, task: Task, sides: Sequence[SideData]) -> bool:
    """Whether a metric of a run is from 0 to 100. One of a side task has its name before it."""
    owner, _, name = metric.partition("/")
    own = next((each.side.task for each in sides if each.side.name == owner), None)
    return own.is_percent(name) if own else task.is_percent(metric)


def list_percent(
    task: Task, metrics: Scores, beside: Mapping[str, Mapping[str, Any]], sides: Sequence[SideData]
) -> list[str]:
    """The metrics of `is_percent`.

    Args:
        task: The run's own task.
        metrics: {split: {metric of that task: value}}.
        beside: The scores of the side tasks, by `conclude_sides`.
        sides: The side tasks.
    """
    names = dict.fromkeys(name for own in metrics.values() for name in own)
    for side, found in beside.items():
        names |= dict.fromkeys(f"{side}/{n}" for own in found["metrics"].values() for n in own)
    return [name for name in names if is_percent(name, task, sides)]


def score_sides(model: Model, sides: Sequence[SideData], precision: Precision) -> dict[str, float]:
    """{"<task>/<metric>": its value on dev} of every side task that has a dev split."""
    scores: dict[str, float] = {}
    for each in sides:
        if "dev" in each.devs:
            seen = each.side.view(model)
            own = predict(seen, each.side.task, each.devs["dev"], precision=precision)[1]
            scores |= {f"{each.side.name}/{metric}": value for metric, value in own.items()}
    return scores


def conclude_sides(
    session: Session, model: Model, sides: Sequence[SideData]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Write predictions/<task>.<split>.jsonl and a checkpoint of each task beside.

    Returns:
        {task: its metrics by split, and what it is}, and lines for people.
    """
    precision, found = choose("fp32", session.world.device), dict[str, Any]()
    lines: dict[str, str] = {}
    for each in sides:
        side, metrics = each.side, dict[str, dict[str, float]]()
        for name, split in each.devs.items():
            predictions, scores = predict(
                side.view(model), side.task, split, precision=precision, digits=precision.digits
            )
            metrics[name] = round_floats(scores)
            write_predictions(session.folder / "predictions", f"{side.name}.{name}", predictions)
        found[side.name] = {"task": side.task.name, "metrics": metrics}
        first = side.task.metrics[0]
        unit = "%" if side.task.is_percent(first) else ""
        said = [f"{first} {own[first]:.4f}{unit} on {n}" for n, own in metrics.items() if own]
        lines[f"beside {side.name}"] = ", ".join(said) or "no dev split"
    if sides:
        folders = save_side_tasks(session.spec, model, session.prepared, session.folder)
        for name, folder in folders.items():
            found[name]["checkpoint"] = str(folder)
            lines[f"beside {name}"] += f"; {folder}"
    return found, lines
