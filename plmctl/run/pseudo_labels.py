"""`plmctl data label`: texts without labels become a training set, by what fine-tuned models say of
them.
"""

from __future__ import annotations

import json
import math
import shlex
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from plmctl.core.errors import ConfigError, UsageError
from plmctl.core.terminal import tell
from plmctl.run.asked_task import describe_model
from plmctl.run.build import build
from plmctl.run.ensemble import Member, ask_members
from plmctl.run.loading import load
from plmctl.run.plugins import option
from plmctl.run.schema import Evaluate
from plmctl.run.writing import Label
from plmctl.storage.resumable import new_folder, write_folder
from plmctl.tasks.base import Example, Task
from plmctl.tasks.classification import Classification
from plmctl.tasks.tables import TEXTS

TINY = 1e-30  # the probability of a label that has rounded to 0


@dataclass(frozen=True)
class Guess:
    """A text with what is said of it.

    Args:
        label: the likeliest one.
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
    members = _ask(spec, splits, reader)
    task: Any = members[0].task
    source = reader[1] if reader else members[0].task
    ((name, texts),) = splits.items()
    known = {split: source.read(split) for split in ("train", "dev") if source.has(split)}
    seen = {_content(example) for examples in known.values() for example in examples}
    answers = [member.answers[name] for member in members]
    guesses = [
        make_guess(example, own, weights=spec.weights, temperature=spec.temperature)
        for example, *own in zip(texts, *answers, strict=True)
        if _content(example) not in seen
    ]
    kept = choose_guesses(guesses, threshold=spec.threshold, share=spec.share)
    if not kept:
        surest = max((guess.sure for guess in guesses), default=0.0)
        what = f"none of {len(guesses):,} new texts has a label of {spec.threshold:g} or more"
        raise UsageError(f"{what}\n  fix: threshold={math.floor(100 * surest) / 100:g} or less")
    labelled = known["train"] if spec.labelled else []
    lines = [*_write_labelled(labelled, task.names), *(guess.line() for guess in kept)]
    others = {"dev.jsonl": "".join(_write_labelled(known.get("dev", []), task.names))}
    job = {"made by": "plmctl data label", **_describe(spec)}
    counted = Counter(guess.label for guess in kept)
    write_folder(
        out,
        "train.jsonl",
        job,
        lines,
        of=lambda rows, first: iter(rows),
        others={file: text for file, text in others.items() if text},
        state=dict(counted),
    )
    if spec.provenance.json:
        counts = {"labelled": len(labelled), "texts": len(texts), "kept": len(kept)}
        of_each = {name: counted[name] for name in task.names}
        tell(json.dumps({"out": spec.out, **counts, "labels": of_each}))
        return 0
    of_labels = ", ".join(f"{name} {counted[name]:,}" for name in task.names)
    said = f"{len(kept):,} of {len(texts):,} texts ({of_labels})"
    tell(f"{out}: {len(labelled):,} labelled examples, and {said}\n{_spell_next(spec, task)}")
    return 0


def make_guess(
    example: Example,
    answers: Sequence[Mapping[str, Any]],
    *,
    weights: Sequence[float] | None = None,
    temperature: float = 1.0,
) -> Guess:
    """What several models say of a text: `softmax_l(sum_m w_m s_m(l) / (T sum_m w_m))`, s_m(l) the
    score of label l, here log p_m(l), which differs from it by a number that softmax takes out
    (PET: Schick and Schuetze, 2021, arXiv:2001.07676, sec. 3.3).
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
    best = max(plain, key=lambda name: plain[name])
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


def _normalise(scores: Mapping[str, float], temperature: float) -> dict[str, float]:
    top = max(scores.values())
    powers = {name: math.exp((score - top) / temperature) for name, score in scores.items()}
    total = math.fsum(powers.values())
    return {name: power / total for name, power in powers.items()}


def _find_labelled(spec: Label) -> tuple[str, Task] | None:
    """(the run `labelled_from`, its task); None: the checkpoint itself says it."""
    if spec.labelled_from is None:
        return None
    loaded = load(spec.labelled_from, plugins=spec.plugins)
    if not (node := loaded.own_task()):
        allowed = "a run of finetune on the task of checkpoint"
        raise ConfigError("labelled_from", spec.labelled_from, allowed, fix="labelled_from=null")
    given = describe_model(loaded, spec.plugins)
    return spec.labelled_from, build(node, given, spec.plugins, path="task")


def _ask(
    spec: Label, splits: dict[str, list[Example]], reader: tuple[str, Task] | None
) -> list[Member]:
    checkpoints = [spec.checkpoint] if isinstance(spec.checkpoint, str) else [*spec.checkpoint]
    if spec.weights is not None and len(spec.weights) != len(checkpoints):
        allowed = f"{len(checkpoints)} numbers, one for each checkpoint"
        raise ConfigError("weights", list(spec.weights), allowed, fix="weights=null: all the same")
    asked = Evaluate(
        provenance=spec.provenance,
        checkpoint=tuple(checkpoints),
        input=spec.input,
        batch_size=spec.batch_size,
        device=spec.device,
    )
    members = list(ask_members(asked, splits, reader=reader))
    task = members[0].task
    read = {role for examples in splits.values() for each in examples for role in each.fields}
    if not isinstance(task, Classification) or read - {*TEXTS}:
        allowed = "of tasks with one label for a text or a pair (classification, cloze, GLUE's)"
        raise ConfigError("checkpoint", spec.checkpoint, f"{allowed}; this one has {task.name}")
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
    words = ["finetune", f"task={name}", f"task.path={spec.out}", *soft, "checkpoint=<a run>"]
    return f"next: {shlex.join(['plmctl', *words])}{option(spec.provenance.plugins)}"
