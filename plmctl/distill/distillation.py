"""Distillation (Hinton et al., 2015): an objective or task, and beside its labels what a teacher
answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from torch import nn

from plmctl.core.batch import Batch, Rows
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.distill.base import LOGITS, Measures, Question, Signal, Teacher, ask_model, count_tokens
from plmctl.distill.questions import Places, make_question
from plmctl.models.base import Model, Once
from plmctl.objectives.base import Objective, Output, Term


@part_of("distill")
class Distillation(Objective):
    """`hard * (terms of the objective) + sum_s weight_s * signal_s(student, teacher)`, both of the
    very same batch.

    `hard=0`: the labels are not asked in training, only measured in validation; without any
    (objective=[]) the signals are
    all there is. `places`: where answers about tokens are compared, at the "predicted" ones or at
    "all" real ones. The backbone of the student runs once for everything. (Hinton et al., 2015,
    arXiv:1503.02531, sec. 2.) ConfigError where a signal asks for what a model does not record, or
    for answers where the objective has none, and where there is nothing to learn.
    """

    def __init__(
        self,
        *,
        objective: Objective,
        model: Model,
        student: Measures,
        teacher: Teacher,
        signals: Mapping[str, Signal],
        hard: float,
        places: Places = "predicted",
    ) -> None:
        super().__init__()
        self.objective, self.teacher = objective, teacher
        self.signals = nn.ModuleDict(signals)
        self.hard, self.writes = hard, model.backbone.writes
        self.question: Question = make_question(objective, model, places)
        self.record = frozenset[str]().union(*(signal.record for signal in signals.values()))
        asked, teachers = self.asked_heads(), teacher.models() if self.record else []
        self.facts = replace(
            objective.facts,
            at_every_token=objective.facts.at_every_token
            | (asked if places == "all" else frozenset()),
            heads_learn=hard > 0 or LOGITS in self.record,
            helpers=(*objective.facts.helpers, *((each, asked) for each in teachers)),
        )
        if hard < 0:
            raise ConfigError("hard", hard, "0 (no labels) or a weight above it")
        if not signals and not (hard and objective.facts.needs):
            allowed = (
                "something to learn: no labels are asked (hard=0,"
                " or objective=[]), and nothing of the teacher"
            )
            raise ConfigError(
                "signals",
                {},
                allowed,
                fix="distill=kd, or distill=minilm, which asks for layers only",
            )
        self._check(student, signals)

    def _check(self, student: Measures, signals: Mapping[str, Signal]) -> None:
        for name, signal in signals.items():
            for measures in (student, self.teacher.measures):
                if lacks := sorted(signal.record - measures.records):
                    there = ", ".join(sorted(measures.records))
                    allowed = (
                        f"asks for {', '.join(lacks)} of {measures.name},"
                        f" whose {measures.kind} gives {there}"
                    )
                    raise ConfigError(
                        f"distill.signals.{name}",
                        ...,
                        allowed,
                        fix="distill=kd, which asks for answers only",
                    )
            if LOGITS in signal.record and not self.question.heads:
                allowed = (
                    "compares answers, and this objective has no language-model head over chosen"
                    " tokens"
                )
                raise ConfigError(
                    f"distill.signals.{name}",
                    ...,
                    allowed,
                    fix="objective=[mlm], or distill=tinybert: layers only",
                )
            if signal.of_choices and not self.question.chooses:
                allowed = "compares probabilities, and this task's answer is a number"
                raise ConfigError(f"distill.signals.{name}", ..., allowed, fix="distill=mse")

    def asked_heads(self) -> frozenset[str]:
        """Of student and teacher alike: those whose answers are compared."""
        return self.question.heads if LOGITS in self.record else frozenset()

    def labels(self, rows: Rows) -> dict[str, np.ndarray]:
        return self.objective.labels(rows)

    def _asks(self) -> bool:
        return self.hard > 0 or not self.training

    def counts(self, batch: Batch) -> dict[str, int]:
        asked, real = self.question.counts(batch), count_tokens(self.writes, batch)
        found = self.objective.counts(batch) if self._asks() else {}
        for name, signal in self.signals.items():
            found |= _called(name, signal.counts(batch, asked, real))  # type: ignore[operator]
        return found

    def forward(self, model: Model, batch: Batch, state: Any = None) -> Output:
        once: Any = Once(model, self.record - {LOGITS})
        own = self.objective(once, batch, state) if self._asks() else Output({})
        terms = {
            name: Term(term.total, self.hard * term.weight) for name, term in own.terms.items()
        }
        logs = dict(own.logs)
        state_out = own.state if self._asks() else once(batch, state).state
        student = ask_model(once, batch, self.question, self.record)
        teacher = self.teacher.answers(batch, self.question, self.record)
        for name, signal in self.signals.items():
            found = signal(student, teacher, batch)
            terms |= _called(name, found.terms)
            logs |= found.logs
        return Output(terms, logs, state_out)

    def after_step(self, model: Model, step: int) -> None:
        self.objective.after_step(model, step)
        self.teacher.after_step(model, step)


def _called(signal: str, terms: Mapping[str, Any]) -> dict[str, Any]:
    """By the name that a term has among those of all signals."""
    return {f"{signal}/{name}" if name else signal: value for name, value in terms.items()}
