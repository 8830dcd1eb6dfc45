"""The answers of fine-tuned models. Adapters of several tasks on one base answer together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from typing import Any

import numpy as np
import torch

from plmctl.artifacts.kept_decision import read_decision
from plmctl.artifacts.loading import Loaded, Source
from plmctl.core.rounding import DIGITS, round_floats
from plmctl.core.terminal import WARN, remark
from plmctl.runtime.base import Runtime
from plmctl.serve.queue import TRUNCATED, QueuedItem
from plmctl.tasks import inference
from plmctl.tasks.batches import OVERHEAD
from plmctl.tasks.calibration import LabelDecision
from plmctl.tasks.inference import Split
from plmctl.tasks.record import Example
from plmctl.tasks.task import Task
from plmctl.tasks.trained_texts import count_text_forms, read_trained_forms
from plmctl.text.hanzi import describe_other_form
from plmctl.text.tokenizer import Tokenizer
from plmctl.training.device.precision import Precision
from plmctl.use.calibrating import decide
from plmctl.use.items import PLACE, Item, read_items
from plmctl.use.labeller import LinearLabeller
from plmctl.use.shared_base import SharedBase

Logits = Mapping[str, np.ndarray]
Compute = Callable[[Mapping[str, Split]], Mapping[str, Logits]]

BYTES = 4  # length of a token in UTF-8, a guess: only the size of a batch depends on it
OWN = ("id", "gold", "golds")  # entries of a prediction that say nothing of a new text


@dataclass(frozen=True)
class ServedTask:
    """A task of a server: its rules, the tokenizer of its model, and the decision fitted to it."""

    task: Task
    source: Source
    decision: LabelDecision | None
    digits: int

    @classmethod
    def of(cls, task: Task, source: Source, digits: int, least: float | None) -> ServedTask:
        """The task of a checkpoint, with its decision, or another least probability of an answer.

        Args:
            task: The task.
            source: The checkpoint.
            digits: Significant digits of its numbers.
            least: The least probability; None: as in the decision.
        """
        return cls(task, source, set_least(read_decision(source.folder), least), digits)

    @cached_property
    def trained_forms(self) -> Mapping[str, int]:
        """How many of its training texts are in each form of Chinese."""
        return read_trained_forms(self.source.home)

    def decide(self, answers: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The answers by the decision, rounded as those of `plmctl predict`."""
        rounded = round_floats(answers, self.digits)
        return decide(self.decision, self.source.folder, self.task, rounded, self.digits)[0]


def set_least(decision: LabelDecision | None, least: float | None) -> LabelDecision | None:
    """The decision with another least probability of an answer, where it is known; a model without
    labels has no use for it.
    """
    return decision if least is None else replace(decision or LabelDecision(), sure=least, goal=0.0)


class LabelEngine:
    """Answers examples of tasks that share a backbone.

    Args:
        tasks: The tasks by their names.
        compute: The logits of the rows of each task.
    """

    name = "labels"

    def __init__(self, tasks: Mapping[str, ServedTask], compute: Compute) -> None:
        self.tasks, self.compute = dict(tasks), compute
        self._ids, self._warned = count(), set[str]()

    def find_longest(self, name: str) -> int | None:
        """The tokens to which a text is cut for a task; None where none is."""
        return self.tasks[name].task.max_length

    def read(self, name: str, items: Sequence[Item]) -> list[QueuedItem]:
        """The questions of texts, pairs or records for a task; DataError for one it cannot read."""
        task = self.tasks[name].task
        with read_items(task, items) as (_, examples):
            return [self._ask(name, task, example) for example in examples]

    def list_labels(self, name: str) -> Sequence[str]:
        """The names of the labels of a task; none where it answers with something else."""
        return self.tasks[name].task.label_names or ()

    def _ask(self, name: str, task: Task, example: Example) -> QueuedItem:
        size = sum(len(str(value).encode(errors="replace")) for value in example.fields.values())
        own = replace(example, id=str(next(self._ids)))  # clients name theirs alike
        return QueuedItem((name, own), min(task.max_length, 2 + size // BYTES))

    def answer(self, questions: Sequence[tuple[str, Example]]) -> list[dict[str, Any]]:
        """The prediction for each example; `truncated` says that its text was cut, `unknown` which
        share of it the model does not know, where that is most of it.
        """
        places: dict[str, list[int]] = {}
        for place, (name, _) in enumerate(questions):
            places.setdefault(name, []).append(place)
        splits = {
            name: inference.encode_piece(
                self.tasks[name].task,
                name,
                [questions[place][1] for place in own],
                self.tasks[name].source.tokenizer,
            )
            for name, own in places.items()
        }
        logits, answers = self.compute(splits), dict[int, dict[str, Any]]()
        for name, own in places.items():
            served, split = self.tasks[name], splits[name]
            self._warn_of_form(name, split.examples)
            found = served.task.predict(logits[name], split.rows, split.examples)
            named = served.decide(name_unread(found, split, served.source.tokenizer))
            for place, answer in zip(own, named, strict=True):
                answers[place] = {key: answer[key] for key in answer if key not in OWN}
        return [answers[place] for place in range(len(questions))]

    def _warn_of_form(self, name: str, examples: Sequence[Example]) -> None:
        """Say once that texts are in a form of Chinese which the training texts lack."""
        trained = {} if name in self._warned else self.tasks[name].trained_forms
        if said := trained and describe_other_form(count_text_forms(examples), trained):
            self._warned.add(name)
            remark(f"{name}: in a request {said}; later ones have no line", WARN)


class LinearEngine(LabelEngine):
    """Answers by a linear model of words, which reads whole texts.

    Args:
        name: The name of the model.
        labeller: The model.
    """

    def __init__(self, name: str, labeller: LinearLabeller) -> None:
        served = ServedTask(labeller.task, labeller.source, labeller.decision, DIGITS)
        super().__init__({name: served}, lambda splits: {})
        self.labeller = labeller

    def find_longest(self, name: str) -> int | None:
        return None

    def answer(self, questions: Sequence[tuple[str, Example]]) -> list[dict[str, Any]]:
        examples = [example for _, example in questions]
        rows, _ = self.labeller.answer(PLACE, examples, inference.ReadPieces())
        return [{key: own[key] for key in own if key not in OWN} for own in rows]


def name_unread(
    answers: Sequence[dict[str, Any]], split: Split, tokenizer: Tokenizer
) -> list[dict[str, Any]]:
    """The answers of `inference.name_unread`, with `truncated` for a text that was cut."""
    cut = inference.find_cut(split.rows)
    named = enumerate(inference.name_unread(answers, inference.find_unread(split, tokenizer)))
    return [own | ({TRUNCATED: True} if number in cut else {}) for number, own in named]


def open_labels(
    loaded: Loaded,
    task: Task,
    name: str,
    *,
    precision: Precision,
    runtime: Runtime,
    rows: int,
    least: float | None,
) -> LabelEngine:
    """The engine of one model, which computes so many rows at the same time."""
    loaded.model.eval()
    device = precision.device
    how: Any = {"batch_size": rows, "device": device, "overhead": OVERHEAD[device.type]}
    how |= {"runtime": runtime}

    def compute(splits: Mapping[str, Split]) -> Mapping[str, Logits]:
        with torch.no_grad(), precision.autocast():
            return {
                name: inference.run(loaded.model, task, split.rows, **how)[0]
                for name, split in splits.items()
            }

    served = ServedTask.of(task, loaded.source, precision.digits, least)
    return LabelEngine({name: served}, compute)


def share_labels(
    shared: SharedBase, *, precision: Precision, rows: int, least: float | None
) -> LabelEngine:
    """The engine of several tasks on one base model."""

    def compute(splits: Mapping[str, Split]) -> Mapping[str, Logits]:
        with precision.autocast():
            overhead = OVERHEAD[precision.device.type]
            return shared.ask(splits, batch_size=rows, overhead=overhead)

    how = (precision.digits, least)
    tasks = {n: ServedTask.of(own.task, own.source, *how) for n, own in shared.learned.items()}
    return LabelEngine(tasks, compute)
