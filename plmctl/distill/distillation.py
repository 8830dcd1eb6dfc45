"""Distillation (Hinton et al., 2015): an objective or task that learns from the predictions of a
teacher in addition to its labels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import nn

from plmctl.core.batch import Batch
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.distill.base import (
    LOGITS,
    Measures,
    Question,
    Signal,
    Teacher,
    count_tokens,
    record_model,
)
from plmctl.distill.questions import Positions, make_question
from plmctl.distill.transfer import LayerTransfer
from plmctl.models.base import Model, Once
from plmctl.objectives.base import Objective, Output
from plmctl.objectives.mix import weigh
from plmctl.objectives.wrapper import Wrapper


@part_of("distill")
class Distillation(Wrapper):
    """`hard * (terms of the objective) + sum_s weight_s * signal_s(student, teacher)`, both of the
    very same batch.

    `hard=0`: the labels are used only in validation; without any (objective=[]) there are only the
    signals. `transfer`: the phases of a run, each with some of these losses; None: all at once.
    `places`: the positions where logits of tokens are compared, the "predicted" ones or
    "all" real ones. The backbone of the student runs once for everything. (Hinton et al., 2015,
    arXiv:1503.02531, sec. 2.) ConfigError if a signal needs tensors that a model does not record,
    or logits that the objective does not have. ConfigError, too, if nothing would be learned.
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
        places: Positions = "predicted",
        transfer: LayerTransfer | None = None,
    ) -> None:
        super().__init__(objective)
        self.teacher = teacher
        self.signals = nn.ModuleDict(signals)
        self.hard, self.writes = hard, model.backbone.writes
        self.question: Question = make_question(objective, model, places)
        self.record = frozenset[str]().union(*(signal.record for signal in signals.values()))
        # "hidden" are results of cells, all else is found inside of them
        self.holds_cells = bool(self.record - {LOGITS, "hidden"})
        heads, teachers = self.find_compared_heads(), teacher.models() if self.record else []
        self.facts = replace(
            objective.facts,
            at_every_token=objective.facts.at_every_token
            | (heads if places == "all" else frozenset()),
            heads_learn=hard > 0 or LOGITS in self.record,
            terms=objective.facts.terms.union(
                *(
                    _name_terms(name, dict.fromkeys(signal.terms(self.question.names)))
                    for name, signal in signals.items()
                )
            ),
            helpers=(*objective.facts.helpers, *((helper, heads) for helper in teachers)),
        )
        if hard < 0:
            raise ConfigError("hard", hard, "0 (no labels) or a weight above it")
        if not signals and not (hard and objective.facts.needs):
            allowed = (
                "something to learn: neither labels (hard=0,"
                " or objective=[]) nor signals of the teacher"
            )
            fix = "distill=kd, or distill=minilm, which compares only layers"
            raise ConfigError("signals", {}, allowed, fix=fix)
        self._check(student, signals)
        if transfer is not None:
            phases = transfer.plan(model, signals, self.facts.terms)
            self.facts = replace(self.facts, phases=phases)
            if transfer.inherit:
                teacher.bequeath(model, fix="distill.transfer.inherit=false")

    def _check(self, student: Measures, signals: Mapping[str, Signal]) -> None:
        for name, signal in signals.items():
            for measures in (student, self.teacher.measures):
                if lacks := sorted(signal.record - measures.records):
                    recorded = ", ".join(sorted(measures.records))
                    allowed = (
                        f"needs {', '.join(lacks)} of {measures.name},"
                        f" whose {measures.kind} gives {recorded}"
                    )
                    fix = "distill=kd, which compares only logits"
                    raise ConfigError(f"distill.signals.{name}", ..., allowed, fix=fix)
            if LOGITS in signal.record and not self.question.heads:
                allowed = (
                    "compares logits, and this objective has no language-model head over chosen"
                    " tokens"
                )
                fix = "objective=[mlm], or distill=tinybert: layers only"
                raise ConfigError(f"distill.signals.{name}", ..., allowed, fix=fix)
            if signal.of_choices and not self.question.chooses:
                allowed = (
                    "compares probabilities, and this task does not choose one of several labels"
                )
                raise ConfigError(f"distill.signals.{name}", ..., allowed, fix="distill=mse")

    def find_compared_heads(self) -> frozenset[str]:
        """The heads whose logits are compared; none if no signal reads logits."""
        return self.question.heads if LOGITS in self.record else frozenset()

    def _uses_labels(self) -> bool:
        return self.hard > 0 or not self.training

    def counts(self, batch: Batch) -> dict[str, int]:
        positions, real = self.question.counts(batch), count_tokens(self.writes, batch)
        counts = super().counts(batch) if self._uses_labels() else {}
        for name, signal in self.signals.items():
            signal_counts = signal.counts(batch, positions, real)  # type: ignore[operator]
            counts |= _name_terms(name, signal_counts)
        return counts

    def forward(self, model: Model, batch: Batch, state: Any = None) -> Output:
        once: Any = Once(model, self.record - {LOGITS})
        own = self.objective(once, batch, state) if self._uses_labels() else Output({})
        own = weigh(own, self.hard)
        terms, logs = dict(own.terms), dict(own.logs)
        state_out = own.state if self._uses_labels() else once(batch, state).state
        student = record_model(once, batch, self.question, self.record)
        teacher = self.teacher.predict(batch, self.question, self.record)
        for name, signal in self.signals.items():
            output = signal(student, teacher, batch)
            terms |= _name_terms(name, output.terms)
            logs |= output.logs
        return Output(terms, logs, state_out, own.contrasts, own.answers)

    def after_step(self, model: Model, step: int) -> None:
        super().after_step(model, step)
        self.teacher.after_step(model, step)


def _name_terms(signal: str, terms: Mapping[str, Any]) -> dict[str, Any]:
    """The terms by their names among those of all signals."""
    return {f"{signal}/{name}" if name else signal: value for name, value in terms.items()}
