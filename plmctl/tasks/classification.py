"""One class for one text or a pair of texts: GLUE's classification tasks and any table with a
label column.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from plmctl.core.fields import Field
from plmctl.core.parts import part_of
from plmctl.tasks.answers.classes import ClassAnswer
from plmctl.tasks.layouts.texts import TextRows
from plmctl.tasks.scores import labels as label_score
from plmctl.tasks.task import Task, TaskSettings, need
from plmctl.tasks.transform import Transform


@dataclass(frozen=True, kw_only=True)
class ClassificationSettings(TaskSettings):
    """Settings of classification.

    Args:
        label_names: in the order of the logits; None: as the training split has them.
        positive: the class whose F1 counts.
        submission: {split: the file name that a leader board asks for}.
        transform: The change of rows for a model.
        symmetric: the two texts of a pair have no order.
        class_weights: {label: weight in the loss}, or "balanced"; None: 1 each.
        focal_gamma: The gamma of the focal loss; 0: none.
        label_smoothing: the share of a label that all labels have in equal parts.
    """

    label_names: Sequence[str] | None = None
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

    fields: Mapping[str, Field] = ClassAnswer.fields
    facts = ClassAnswer.facts

    Settings: ClassVar[type[ClassificationSettings]] = ClassificationSettings

    def __init__(self, **settings: Any) -> None:
        own = self.Settings(**settings)
        needed = (
            "task.positive=<the class whose F1 counts>"
            if own.positive is None and "f1" in own.metrics
            else ""
        )
        super().__init__(
            own,
            metrics=label_score.check_names(own.metrics, self.known_metrics(own), fix=needed),
            label_names=own.label_names,
            submission=own.submission,
            transform=own.transform,
            layout=TextRows(symmetric=own.symmetric),
            answer=ClassAnswer(
                class_weights=own.class_weights,
                focal_gamma=own.focal_gamma,
                label_smoothing=own.label_smoothing,
            ),
            scores=label_score.LabelScores(positive=own.positive),
        )
        self.positive = own.positive

    @classmethod
    def known_metrics(cls, settings: ClassificationSettings) -> Iterable[str]:
        """The names of the metrics that `score` can compute."""
        return label_score.known_names(settings.positive)

    @property
    def decided(self) -> dict[str, Any]:
        return super().decided | need(self.answer).decided
