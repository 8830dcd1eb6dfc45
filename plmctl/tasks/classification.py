"""One class for one text or a pair of texts: GLUE's classification tasks and any table with a
label column.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from plmctl.core.parts import part_of
from plmctl.tasks.answers.classes import ClassAnswer
from plmctl.tasks.layouts.base import RowLayout
from plmctl.tasks.layouts.texts import TextRows
from plmctl.tasks.readers.label_codes import LabelNames
from plmctl.tasks.scores.base import Scores
from plmctl.tasks.scores.labels import LabelScores
from plmctl.tasks.task import Task, TaskSettings
from plmctl.tasks.transform import Transform


@dataclass(frozen=True, kw_only=True)
class ClassificationSettings(TaskSettings):
    """Settings of classification.

    Args:
        label_names: in the order of the logits, or {code in files: name}; None: as the training
            split has them.
        positive: the class whose F1 counts.
        submission: {split: the file name that a leader board asks for}.
        transform: The change of rows for a model.
        symmetric: the two texts of a pair have no order.
        class_weights: {label: weight in the loss}, or "balanced"; None: 1 each.
        focal_gamma: The gamma of the focal loss; 0: none.
        label_smoothing: the share of a label that all labels have in equal parts.
    """

    label_names: LabelNames | None = None
    positive: str | None = None
    submission: Mapping[str, str] | None = None
    transform: Transform | None = None
    symmetric: bool = False
    class_weights: Mapping[str, float] | str | None = None
    focal_gamma: float = 0.0
    label_smoothing: float = 0.0


@part_of("task")
class Classification(Task):
    """Predicts the class of a text or a pair (Devlin et al., 2019, sec. 4.1; for decoders Radford
    et al., 2018, sec. 3.2).

    `loss = -log softmax(head(pool(h)))[label]`, averaged over examples; pool: `pool_rows`.
    `LabelLoss` weighs classes, smooths labels, and lets easy examples count less.
    `symmetric`: the two texts of a pair stand in no order, so that `transform.both_orders` reads
    them both ways. Where a column states probabilities y of the labels, as of an ensemble that is
    to be imitated, `loss = -sum_k y_k log softmax(z)_k`.
    """

    fields = ClassAnswer.fields
    facts = ClassAnswer.facts

    Settings: ClassVar[type[ClassificationSettings]] = ClassificationSettings

    def __init__(self, **settings: Any) -> None:
        own = self.Settings(**settings)
        scores = self.judge(own)
        needed = (
            "task.positive=<the class whose F1 counts>"
            if own.positive is None and "f1" in own.metrics
            else ""
        )
        super().__init__(
            own,
            metrics=scores.check(own.metrics, fix=needed),
            label_names=own.label_names,
            submission=own.submission,
            transform=own.transform,
            layout=self.lay_out(own),
            answer=ClassAnswer(
                class_weights=own.class_weights,
                focal_gamma=own.focal_gamma,
                label_smoothing=own.label_smoothing,
            ),
            scores=scores,
        )

    def lay_out(self, own: Any) -> RowLayout:
        """The layout, by the settings of the class."""
        return TextRows(symmetric=own.symmetric)

    def judge(self, own: Any) -> Scores:
        """The scores, by the settings of the class."""
        return LabelScores(positive=own.positive)
