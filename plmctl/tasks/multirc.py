"""MultiRC: which answers to a question about a passage are right, of which there may be several?"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from plmctl.core.parts import part_of
from plmctl.tasks.classification import Classification, ClassificationSettings
from plmctl.tasks.layouts.texts import parse_texts
from plmctl.tasks.record import Example, Predictions


@dataclass(frozen=True, kw_only=True)
class MultircSettings(ClassificationSettings):
    """Settings of MultiRC: those of classification; its files have no columns."""

    columns: Mapping[str, Any] | None = None  # type: ignore[assignment]


@part_of("task")
class Multirc(Classification):
    """Predicts of each answer whether it is right, from `passage, question answer` (Wang et al.,
    2019, arXiv:1905.00537, sec. 4.1).

    `f1` of "1" is the official F1a, over all answers of all questions; `exact` is EM, the share of
    questions of which every answer is judged right.
    """

    Settings = MultircSettings
    facts = replace(
        Classification.facts, typed="lines that you type: passage <tab> question and answer"
    )

    def parse(self, line: str, number: int) -> Example:
        return parse_texts(line, number, {"text": 0, "text2": 1})

    def unit(self, example: Example) -> str:
        """Questions about one passage stay on one side."""
        return str(example.fields["text"])

    def submit(self, predictions: Predictions) -> str:
        """Lines of passages with their questions, and these with their answers."""
        passages: dict[int, dict[int, list[dict[str, int]]]] = {}
        for prediction in predictions:
            passage, question, answer = map(int, prediction["id"].split("."))
            row = {"idx": answer, "label": int(prediction["guess"])}
            passages.setdefault(passage, {}).setdefault(question, []).append(row)
        lines = [
            {
                "idx": number,
                "passage": {
                    "questions": [
                        {"idx": asked, "answers": answers} for asked, answers in questions.items()
                    ]
                },
            }
            for number, questions in passages.items()
        ]
        return "".join(json.dumps(line) + "\n" for line in lines)
