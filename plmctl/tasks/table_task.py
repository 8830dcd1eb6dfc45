"""A task of four values: a reader of files, a layout of rows, an answer, and scores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, final

from plmctl.core.parts import part_of
from plmctl.tasks.answers.base import Answer
from plmctl.tasks.layouts.base import RowLayout
from plmctl.tasks.readers.label_codes import LabelNames
from plmctl.tasks.scores.base import Scores
from plmctl.tasks.task import Task, TaskSettings, need
from plmctl.tasks.transform import Transform


@dataclass(frozen=True, kw_only=True)
class TableTaskSettings(TaskSettings):
    """Settings of a task of four values.

    Args:
        layout: makes rows of examples.
        answer: has labels, a loss and predictions, and names its head.
        scores: computes the metrics.
        label_names: in the order of the logits, or {code in files: name}; None: as the training
            split has them.
        submission: {split: the file name that a leader board asks for}.
        keyed: Whether that file is one JSON object {id: answer}, not a line for each example.
        transform: The change of rows for a model.
    """

    layout: RowLayout
    answer: Answer
    scores: Scores
    label_names: LabelNames | None = None
    submission: Mapping[str, str] | None = None
    keyed: bool = False
    transform: Transform | None = None


@final
@part_of("task")
class TableTask(Task):
    """Reads examples, lays them out, and asks one head for the answer; a config names all four
    parts, so that a new task of tables needs no class.
    """

    facts_from = "answer"  # the setting whose part states the facts of the task

    Settings = TableTaskSettings

    def __init__(self, **settings: Any) -> None:
        own = TableTaskSettings(**settings)
        self.facts = replace(own.answer.facts, typed=own.layout.typed, keyed=own.keyed)
        super().__init__(
            own,
            label_names=own.label_names,
            submission=own.submission,
            transform=own.transform,
            layout=own.layout,
            answer=own.answer,
            scores=own.scores,
        )

    @property
    def decided(self) -> dict[str, Any]:
        of = dict.fromkeys(need(self.layout).decided, "layout")
        of |= dict.fromkeys(need(self.answer).decided, "answer")
        return {f"{of[n]}.{n}" if n in of else n: value for n, value in super().decided.items()}
