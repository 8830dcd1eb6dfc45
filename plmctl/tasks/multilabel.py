"""Any number of labels for one text or a pair of texts, from tables of the user's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from plmctl.core.parts import part_of
from plmctl.tasks.answers.base import HALF, Threshold
from plmctl.tasks.answers.label_sets import Rule, SetAnswer
from plmctl.tasks.layouts.texts import TextRows
from plmctl.tasks.readers.label_codes import LabelNames
from plmctl.tasks.scores.label_sets import SetScores
from plmctl.tasks.task import Task, TaskSettings
from plmctl.tasks.transform import Transform


@dataclass(frozen=True, kw_only=True)
class MultilabelSettings(TaskSettings):
    """Settings of multi-label classification.

    Args:
        label_names: in the order of the logits, or {code in files: name}; None: as the training
            split has them.
        threshold: The probability threshold of a label: one for all, or {label: its own}.
        decide: "above": all labels above their threshold; "top": these, and always the first one.
        transform: The change of rows for a model.
        class_weights: {label: weight in the loss where it is there}, or "balanced"; None: 1 each.
        focal_gamma: The gamma of the focal loss; 0: none.
        label_smoothing: the share of a decision that both of its sides have in equal parts.
    """

    label_names: LabelNames | None = None
    threshold: Threshold = HALF
    decide: Rule = "above"
    transform: Transform | None = None
    class_weights: Mapping[str, float] | str | None = None
    focal_gamma: float = 0.0
    label_smoothing: float = 0.0


@part_of("task")
class Multilabel(Task):
    """Predicts all labels of a text or a pair, each by itself (`SetAnswer`), from one state of the
    row: z = head(pool(h)).
    """

    fields = SetAnswer.fields
    facts = SetAnswer.facts

    Settings = MultilabelSettings

    def __init__(self, **settings: Any) -> None:
        own = MultilabelSettings(**settings)
        super().__init__(
            own,
            label_names=own.label_names,
            transform=own.transform,
            layout=TextRows(),
            answer=SetAnswer(
                threshold=own.threshold,
                decide=own.decide,
                class_weights=own.class_weights,
                focal_gamma=own.focal_gamma,
                label_smoothing=own.label_smoothing,
            ),
            scores=SetScores(),
        )
