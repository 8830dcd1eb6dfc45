"""The polarity of an aspect of a text: of a term in it, or of a category."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from plmctl.core.batch import Rows
from plmctl.core.parts import part_of
from plmctl.tasks.classification import Classification, ClassificationSettings
from plmctl.tasks.layouts.aspects import AspectRows, Way
from plmctl.tasks.layouts.markers import Style
from plmctl.tasks.record import Arrays, Examples


@dataclass(frozen=True, kw_only=True)
class AspectSettings(ClassificationSettings):
    """Settings of aspect sentiment.

    Args:
        read: "pair", the text and behind it the aspect; or "marks", the text with marks around the
            aspect.
        marks: these marks (tasks/layouts/markers.py).
    """

    read: Way = "pair"
    marks: Style = "symbols"


@part_of("task")
class AspectSentiment(Classification):
    """Predicts the polarity of an aspect from the pair of text and aspect (BERT-SPC: Song et al.,
    2019, arXiv:1902.09314, sec. 3.6; Sun et al., 2019, arXiv:1903.09588, sec. 2.2), or from the
    text with marks around the aspect; loss and metrics are those of classification.
    """

    fields = AspectRows.fields
    Settings = AspectSettings
    facts = replace(Classification.facts, typed=AspectRows.typed)

    def lay_out(self, own: AspectSettings) -> AspectRows:
        return AspectRows(read=own.read, marks=own.marks)

    def predict(self, logits: Arrays, rows: Rows, examples: Examples) -> list[dict[str, Any]]:
        found = super().predict(logits, rows, examples)
        return [
            {**prediction, "aspect": example.fields["text2"]}
            for prediction, example in zip(found, examples, strict=True)
        ]
