"""One tag for each word of a sentence: CoNLL-2003 names, and any column file of tagged words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from plmctl.core.fields import Field
from plmctl.core.parts import part_of
from plmctl.tasks.answers.tag_chain import CrfKind
from plmctl.tasks.answers.tags import TagAnswer
from plmctl.tasks.layouts.sentence_rows import Cut, SentenceRows
from plmctl.tasks.readers.schemes import SpellingName
from plmctl.tasks.scores.base import Scores
from plmctl.tasks.scores.tags import TagScores
from plmctl.tasks.task import Task, TaskSettings


@dataclass(frozen=True, kw_only=True)
class TaggingSettings(TaskSettings):
    """Settings of tagging.

    Args:
        metrics: The metrics; None: f1, precision and recall of entities where the tags mark some,
            otherwise accuracy and macro_f1 of single words.
        label_names: in the order of the logits; None: as the training split has them.
        joiner: The text between words; None: nothing where every word of the training split is one
            character, otherwise a space.
        context: The content of a row: a sentence, or as much of its document around it as fits.
        class_weights: {label: weight in the loss}, or "balanced"; None: 1 each.
        focal_gamma: The gamma of the focal loss; 0: none.
        label_smoothing: the share of a label that all labels have in equal parts.
        scheme: in which entities are spelled; None: as the reader gives them.
        words: The cut of a new line: at its "spaces", or as a "text" into words and single marks;
            None: as a text where those of training have entities by their characters.
        crf: a CRF over the tags of a sentence, "free" or "legal" (tasks/answers/tag_chain.py);
            None: a softmax for each word.
    """

    metrics: Sequence[str] | None = None  # type: ignore[assignment]
    label_names: Sequence[str] | None = None
    joiner: str | None = None
    context: Literal["sentence", "document"] = "sentence"
    class_weights: Mapping[str, float] | str | None = None
    focal_gamma: float = 0.0
    label_smoothing: float = 0.0
    scheme: SpellingName | None = None
    words: Cut | None = None
    crf: CrfKind | None = None


@part_of("task")
class Tagging(Task):
    """Predicts the tag of each word (`TagAnswer`) of a sentence (`SentenceRows`); the loss is
    averaged over words.
    """

    fields: Mapping[str, Field] = {**TagAnswer.fields, **SentenceRows.fields}
    facts = TagAnswer.facts

    Settings: ClassVar[type[TaggingSettings]] = TaggingSettings
    rows_by: ClassVar[type[SentenceRows]] = SentenceRows
    alone: ClassVar[bool] = False  # whether words are all the text of an example

    def __init__(self, **settings: Any) -> None:
        own = self.Settings(**settings)
        super().__init__(
            own,
            label_names=own.label_names,
            layout=self.rows_by(
                joiner=own.joiner, context=own.context, words=own.words, alone=self.alone
            ),
            answer=self.answer_by(own),
            scores=self.judge(own),
        )

    def answer_by(self, own: Any) -> TagAnswer:
        """The answer, by the settings of the class."""
        return TagAnswer(**choose(own))

    def judge(self, own: Any) -> Scores:
        """The scores, by the settings of the class."""
        return TagScores()


def choose(own: TaggingSettings) -> dict[str, Any]:
    """The settings of a `TagAnswer` among those of a task."""
    names = ("class_weights", "focal_gamma", "label_smoothing", "scheme", "crf")
    return {name: getattr(own, name) for name in names}
