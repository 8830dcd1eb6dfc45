"""`plmctl data label`: texts without labels become a training set, by what fine-tuned models say of
them.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from plmctl.artifacts.loading import Loaded, open_source
from plmctl.config.build import build
from plmctl.config.plugins import option
from plmctl.config.writing import Label
from plmctl.core.errors import AbsentData, ConfigError, DataError, UsageError
from plmctl.core.spelling import spell_setting
from plmctl.core.terminal import WARN, counted, remark, tell
from plmctl.storage.resumable import new_folder, write_folder
from plmctl.tasks.calibration import LabelDecision, choose, join_decisions
from plmctl.tasks.classification import Classification
from plmctl.tasks.inference import has_empty_text
from plmctl.tasks.readers.tables import TEXTS
from plmctl.tasks.record import Example
from plmctl.tasks.task import Task
from plmctl.tasks.unlabelled import read_unlabelled
from plmctl.training.device.precision import choose as choose_precision
from plmctl.training.processes.world import device_of
from plmctl.use.asked_task import ask_all, describe_model, open_task
from plmctl.use.ensemble import Member, ask_members

TINY = 1e-30  # the probability of a label that has rounded to 0
_KINDS = "tasks with one label for a text or a pair (classification, cloze, GLUE's)"


@dataclass(frozen=True)
class Guess:
    """A text with what is said of it.

    Args:
        label: the likeliest one, or what a kept threshold says.
        sure: its probability.
        shares: {label: probability} at the temperature that was asked for.
    """

    example: Example
    label: str
    sure: float
    shares: Mapping[str, float]

    def line(self) -> str:
        """As a row of the new files."""
        return _write_row(self.example, self.label, self.shares)


def label(spec: Label) -> int:
    """Write `out`: train.jsonl of the labelled examples and the guesses that are kept, and
    dev.jsonl of the task of `labelled_from`.
    """
    out, splits = new_folder(spec.out), dict[str, list[Example]]()
    reader = _find_labelled(spec)
    known = _read_known(spec, *reader)
    members = _ask(spec, splits, reader)
    task: Any = members[0].task
    decision = join_decisions([each.task for each in members], [each.kept for each in members])
    ((name, texts),) = splits.items()
    seen = {_content(example) for examples in known.values() for example in examples}
    guesses = [
        make_guess(
            example,
            own,
            weights=spec.weights,
            temperature=spec.temperature,
            decide=partial(_decide, task, decision or LabelDecision()),
        )
        for example, *own in zip(texts, *(each.answers[name] for each in members), strict=True)
        if _content(example) not in seen and not has_empty_text(example)
    ]
    kept = _keep(spec, guesses)
    labelled = known["train"] if spec.labelled else []
    lines = [*_write_labelled(labelled, task.names), *(guess.line() for guess in kept)]
    others = {"dev.jsonl": "".join(_write_labelled(known.get("dev", []), task.names))}
    decided = {"decision": decision.describe()} if decision else {}
    if empty := [example for example in texts if has_empty_text(example)]:
        decided["left out"] = f"{counted(len(empty), 'empty text')}, the first {empty[0].place}"
    job = {"made by": "plmctl data label", **_describe(spec), **decided}
    labels = Counter(guess.label for guess in kept)
    if (alone := name_only_label(labels)) and len(task.names) > 1:
        remark(f"all {len(kept):,} texts have the label {alone}: they teach no other one", WARN)
    write_folder(
        out,
        "train.jsonl",
        job,
        lines,
        of=lambda rows, first: iter(rows),
        others={file: text for file, text in others.items() if text},
        state=dict(labels),
    )
    if spec.provenance.json:
        counts = {"labelled": len(labelled), "texts": len(texts), "kept": len(kept)}
        of_each = {name: labels[name] for name in task.names}
        tell(json.dumps({"out": spec.out, **counts, "labels": of_each, **decided}))
        return 0
    of_labels = ", ".join(f"{name} {labels[name]:,}" for name in task.names)
    said = f"{len(kept):,} of {len(texts):,} texts ({of_labels})"
    lines = [f"{out}: {len(labelled):,} labelled examples, and {said}"]
    lines += [f"{name}: {value}" for name, value in decided.items()]
    tell("\n".join([*lines, _spell_next(spec, task)]))
    return 0


def make_guess(
    example: Example,
    answers: Sequence[Mapping[str, Any]],
    *,
    weights: Sequence[float] | None = None,
    temperature: float = 1.0,
    decide: Callable[[Mapping[str, float]], str] | None = None,
) -> Guess:
    """What several models say of a text: `softmax_l(sum_m w_m s_m(l) / (T sum_m w_m))`, s_m(l) the
    score of label l, here log p_m(l), which differs from it by a number that softmax takes out
    (PET: Schick and Schuetze, 2021, arXiv:2001.07676, sec. 3.3).

    `decide`: the label of these probabilities, with T = 1; None: the likeliest.
    """
    given = weights or [1.0] * len(answers)
    sides = [answer["probabilities"] for answer in answers]
    scores = {
        name: math.fsum(
            weight * math.log(max(side[name], TINY))
            for weight, side in zip(given, sides, strict=True)
        )
        / math.fsum(given)
        for name in sides[0]
    }
    plain, soft = _normalise(scores, 1.0), _normalise(scores, temperature)
    best = decide(plain) if decide else max(plain, key=plain.__getitem__)
    return Guess(example, best, plain[best], soft)


def choose_guesses(guesses: Sequence[Guess], *, threshold: float, share: float) -> list[Guess]:
    """Those of at least the threshold, and of each label the share that is surest, one at least; in
    their order.
    """
    of_labels: dict[str, list[int]] = defaultdict(list)
    for place, guess in enumerate(guesses):
        if guess.sure >= threshold:
            of_labels[guess.label].append(place)
    kept: set[int] = set()
    for places in of_labels.values():
        surest = sorted(places, key=lambda place: -guesses[place].sure)
        kept.update(surest[: max(1, round(share * len(places)))])
    return [guesses[place] for place in sorted(kept)]


def _keep(spec: Label, guesses: Sequence[Guess]) -> list[Guess]:
    """The guesses that are learned from; an error where there are none."""
    if not guesses:
        what = "all of its texts are among the labelled examples, in dev, or empty"
        raise DataError(what, file=spec.input, fix="input=<new texts>")
    kept = choose_guesses(guesses, threshold=spec.threshold, share=spec.share)
    if not kept:
        surest = max(guess.sure for guess in guesses)
        what = f"none of {len(guesses):,} new texts has a label of {spec.threshold:g} or more"
        raise UsageError(f"{what}\n  fix: threshold={math.floor(100 * surest) / 100:g}")
    return kept


def name_only_label(labels: Mapping[str, int]) -> str:
    """The label that all of several texts have; "" where they have different ones."""
    return next(iter(labels)) if len(labels) == 1 and sum(labels.values()) > 1 else ""


def _normalise(scores: Mapping[str, float], temperature: float) -> dict[str, float]:
    top = max(scores.values())
    powers = {name: math.exp((score - top) / temperature) for name, score in scores.items()}
    total = math.fsum(powers.values())
    return {name: power / total for name, power in powers.items()}


def _decide(task: Task, decision: LabelDecision, probabilities: Mapping[str, float]) -> str:
    row = {"guess": "", "probabilities": probabilities}
    return str(choose(task, row, decision)["guess"])


def _find_labelled(spec: Label) -> tuple[str, Task]:
    """(the run that says the labelled examples, its task)."""
    setting = "checkpoint" if spec.labelled_from is None else "labelled_from"
    run = spec.labelled_from or _list_checkpoints(spec)[0]
    source = open_source(run, plugins=spec.plugins)
    if not (node := source.own_task()):
        fix = "labelled_from=null" if spec.labelled_from else f"{setting}=<a run of finetune>"
        raise ConfigError(setting, run, "it was not fine-tuned on a task", fix=fix)
    task: Task = build(node, describe_model(source, spec.plugins), spec.plugins, path="task")
    if task.answer != "class":
        raise ConfigError(setting, run, f"{_KINDS}; this one has {task.name}")
    return run, task


def _read_known(spec: Label, run: str, task: Task) -> dict[str, list[Example]]:
    """The examples of train and dev, as far as their files are there still; ConfigError where
    those of train are asked for and are not.
    """
    known: dict[str, list[Example]] = {}
    for split in ("train", "dev"):
        with contextlib.suppress(AbsentData):
            known |= {split: task.read(split)} if task.has(split) else {}
    if spec.labelled and "train" not in known:
        allowed = f"the examples that {run} was trained on are no longer in {task.path}"
        fix = "labelled=false, or put their file back"
        raise ConfigError("labelled", True, allowed, fix=fix)
    return known


def _list_checkpoints(spec: Label) -> list[str]:
    return [spec.checkpoint] if isinstance(spec.checkpoint, str) else [*spec.checkpoint]


def _ask(spec: Label, splits: dict[str, list[Example]], reader: tuple[str, Task]) -> list[Member]:
    checkpoints = _list_checkpoints(spec)
    if spec.weights is not None and len(spec.weights) != len(checkpoints):
        allowed = f"{len(checkpoints)} numbers, one for each checkpoint"
        raise ConfigError("weights", list(spec.weights), allowed, fix="weights=null: all the same")

    def open_member(loaded: Loaded, checkpoint: str) -> Task:
        task: Task = open_task(loaded, None, (), checkpoint=checkpoint)
        ask_all(task, loaded, (), split="dev", checkpoint=checkpoint)
        return task

    members = list(
        ask_members(
            checkpoints,
            open_member,
            lambda task: dict([read_unlabelled(task, spec.input)]),
            splits,
            precision=choose_precision("fp32", device_of(spec.device, "device")),
            batch_size=spec.batch_size,
            plugins=spec.plugins,
            reader=reader,
        )
    )
    read = {role for examples in splits.values() for each in examples for role in each.fields}
    if read - {*TEXTS}:
        has = members[0].task.name
        raise ConfigError("checkpoint", spec.checkpoint, f"{_KINDS}; this one has {has}")
    return members


def _content(example: Example) -> tuple[str, ...]:
    return tuple(str(example.fields.get(role, "")) for role in TEXTS)


def _write_labelled(examples: Sequence[Example], names: Sequence[str]) -> Iterator[str]:
    for example in examples:
        stated = example.shares or {example.label: 1.0}
        shares = {name: stated.get(name, 0.0) for name in names}
        yield _write_row(example, example.label, shares)


def _write_row(example: Example, label: str, shares: Mapping[str, float]) -> str:
    texts = {role: example.fields[role] for role in TEXTS if role in example.fields}
    row = {**texts, "label": label, "probabilities": dict(shares)}
    return json.dumps(row, ensure_ascii=False) + "\n"


def _describe(spec: Label) -> dict[str, Any]:
    names = (
        *("checkpoint", "weights", "input", "threshold", "share", "temperature"),
        *("labelled", "labelled_from"),
    )
    return {name: spec.select(name) for name in names}


def _spell_next(spec: Label, task: Classification) -> str:
    """The fine-tuning on what was written."""
    pair = task.columns.get("text2") is not None
    name = "pair_classification" if pair else "classification"
    soft = ["task.columns.probabilities=probabilities"] if spec.temperature != 1 else []
    words = [f"task={name}", spell_setting("task.path", spec.out), *soft, "checkpoint=<a run>"]
    return f"next: plmctl finetune {' '.join(words)}{option(spec.provenance.plugins)}"
