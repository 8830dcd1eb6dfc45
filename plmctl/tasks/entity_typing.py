"""The types of a marked entity, of which it may have several: Open Entity, FIGER and files of
their layouts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from plmctl.core.fields import Field
from plmctl.core.parts import part_of
from plmctl.tasks.answers.label_sets import Rule, SetAnswer
from plmctl.tasks.layouts.marked import States
from plmctl.tasks.layouts.marked_rows import MarkedRows
from plmctl.tasks.layouts.markers import Style
from plmctl.tasks.readers.label_codes import LabelNames
from plmctl.tasks.scores.label_sets import TypeScores
from plmctl.tasks.task import Task, TaskSettings


@dataclass(frozen=True, kw_only=True)
class TypingSettings(TaskSettings):
    """Settings of entity typing.

    Args:
        label_names: in the order of the logits, or {code in files: name}; None: as the training
            split has them.
        marks: around the mention (tasks/layouts/markers.py).
        states: The states that the types are read from.
        entities: The entities, as for relations.
        decide: "above": all types above the threshold; "top": these, and always the first one.
        threshold: The probability threshold of a type.
    """

    label_names: LabelNames | None = None
    marks: Style = "symbols"
    entities: str | None = None
    states: States = "row"
    decide: Rule = "above"
    threshold: float = 0.5
    columns: Mapping[str, Any] | None = None  # type: ignore[assignment]  # its files have none


@part_of("task")
class EntityTyping(Task):
    """Predicts all types of a marked mention, each by itself (Zhang et al., 2019,
    arXiv:1905.07129, sec. 3.5).

    `loss = - mean over types k of [y_k log s(z_k) + (1 - y_k) log s(-z_k)]`, z the logits, s the
    sigmoid, averaged over mentions. Types with s(z_k) > `threshold` are guessed: with 0.5 those
    with z_k > 0 (Open Entity), with `decide="top"` also the best one (FIGER). The metrics are
    followed by the threshold that has the best micro F1 (loose) on these very predictions, and that
    F1. Its value on dev is meant for `task.threshold` on test.
    """

    fields: Mapping[str, Field] = {**SetAnswer.fields, **MarkedRows.fields}
    facts = replace(
        SetAnswer.facts,
        needs=SetAnswer.facts.needs | {"values.mentions"},
        typed="texts that you type, one a line, with <e1>mention</e1>",
    )
    opens = MarkedRows.opens

    Settings = TypingSettings

    def __init__(self, **settings: Any) -> None:
        own = TypingSettings(**settings)
        super().__init__(
            own,
            label_names=own.label_names,
            layout=MarkedRows(count=1, marks=own.marks, states=own.states, entities=own.entities),
            answer=SetAnswer(threshold=own.threshold, decide=own.decide),
            scores=TypeScores(),
        )
