"""One number for one text or a pair of texts: STS-B and any table with a column of scores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from plmctl.core.parts import part_of
from plmctl.tasks.answers.number import NumberAnswer
from plmctl.tasks.layouts.texts import TextRows
from plmctl.tasks.scores.numbers import NumberScores
from plmctl.tasks.task import Task, TaskSettings
from plmctl.tasks.transform import Transform


@dataclass(frozen=True, kw_only=True)
class RegressionSettings(TaskSettings):
    """Settings of regression.

    Args:
        submission: {split: the file name that a leader board asks for}.
        transform: The change of rows for a model.
        symmetric: the two texts of a pair have no order.
    """

    submission: Mapping[str, str] | None = None
    transform: Transform | None = None
    symmetric: bool = False


@part_of("task")
class Regression(Task):
    """Predicts a score: one output, mean squared error (Cer et al., 2017, in the form of Devlin et
    al., 2019).

    `loss = (head(pool(h)) - score)^2`; predictions are not clamped to the range of the gold scores.
    Differs: GPT's code fits a six-class soft label; here decoders, too, have one output.
    """

    fields = NumberAnswer.fields
    facts = NumberAnswer.facts

    Settings = RegressionSettings

    def __init__(self, **settings: Any) -> None:
        own = RegressionSettings(**settings)
        super().__init__(
            own,
            submission=own.submission,
            transform=own.transform,
            layout=TextRows(symmetric=own.symmetric),
            answer=NumberAnswer(),
            scores=NumberScores(),
        )
