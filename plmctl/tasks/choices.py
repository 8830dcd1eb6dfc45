"""Multiple choice: one right answer of several, each with the context in a row of its own (SWAG,
RACE, ARC, ROCStories).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from plmctl.core.parts import part_of
from plmctl.tasks.answers.choice import ChoiceAnswer
from plmctl.tasks.layouts.choices import ChoiceRows
from plmctl.tasks.scores.base import Scores
from plmctl.tasks.scores.labels import LabelScores
from plmctl.tasks.task import Task, TaskSettings
from plmctl.tasks.transform import Transform


@dataclass(frozen=True, kw_only=True)
class ChoiceSettings(TaskSettings):
    """Settings of multiple choice.

    Args:
        transform: The change of rows for a model.
        first_label: the number of the first choice.
        submission: {split: the file name that a leader board asks for}.
    """

    transform: Transform | None = None
    first_label: int = 0
    submission: Mapping[str, str] | None = None


@part_of("task")
class Choice(Task):
    """Multiple choice: a score for each row `text, choice`, and a softmax over the choices of an
    example.

    `loss = -log softmax_k(head(pool(h_k)))[right]`, averaged over examples (Radford et al., 2018,
    sec. 3.3; Devlin et al., 2019, sec. 4.4). Examples may have different numbers of choices. Labels
    are numbers from `first_label` on, or letters from A on. The choice and the token that stands
    for the row are global if the pattern has global tokens.
    """

    fields = ChoiceAnswer.fields
    facts = replace(ChoiceAnswer.facts, typed=ChoiceRows.typed)

    Settings: ClassVar[type[ChoiceSettings]] = ChoiceSettings

    def __init__(self, **settings: Any) -> None:
        own = self.Settings(**settings)
        answer, scores = self.judge(own)
        super().__init__(
            own,
            transform=own.transform,
            submission=own.submission,
            layout=ChoiceRows(),
            answer=answer,
            scores=scores,
        )

    def judge(self, own: ChoiceSettings) -> tuple[ChoiceAnswer, Scores]:
        """The answer and the scores."""
        return ChoiceAnswer(first_label=own.first_label), LabelScores()
