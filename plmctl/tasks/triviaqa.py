"""Extractive question answering where any of several spans of a long document is right."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from plmctl.core.batch import Batch, Rows
from plmctl.core.errors import ConfigError, DataError
from plmctl.core.parts import part_of
from plmctl.core.values import Count, Number
from plmctl.objectives.base import Output, Term
from plmctl.tasks.layouts import places
from plmctl.tasks.layouts.encode import Row
from plmctl.tasks.record import Example, Examples, Predictions
from plmctl.tasks.scores import trivia as matching
from plmctl.tasks.squad import Passage, Squad, SquadSettings


@dataclass(frozen=True, kw_only=True)
class TriviaQASettings(SquadSettings):
    """Settings of questions about long documents.

    Args:
        windows: The windows of a document that are read, the first ones; None: all.
        most_spans: The positions of the answer in one window that count, the first ones.
        passage_weight: The weight of the scores of passages relative to those of answers.
    """

    windows: Count | None = None
    most_spans: Count = 64
    passage_weight: Number = 0.0


@part_of("task")
class TriviaQA(Squad):
    """Predicts the first and last token of an answer that stands in several positions, and the
    right one is unknown (Joshi et al., 2017, arXiv:1705.03551).

    `loss = -(log sum_{s in S} p_start(s) + log sum_{e in E} p_end(e)) / 2`, S and E the first and
    the last tokens of all occurrences of an answer (Clark and Gardner, 2018, arXiv:1710.10723, sec.
    2.2; Beltagy et al., 2020, arXiv:2004.05150, app. D). With one occurrence it is the loss of
    `Squad`. A window without an occurrence counts nothing (allenai/longformer,
    scripts/triviaqa.py). Documents, windows, global tokens and decoding are those of `Squad`. With
    `passage_weight` w, the score of an answer is the sum of its two logits and w times the score of
    its passage. The search sets this score: a linear combination of reader, ranker and retriever
    (Xiong et al., 2020, arXiv:1912.09637, open-domain question answering). Differs: a token that
    begins two occurrences counts once (released code: twice); a question has one prediction for all
    its documents.
    """

    Settings: ClassVar[type[SquadSettings]] = TriviaQASettings

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        own = TriviaQASettings(**settings)
        for name, allowed in (("version", 1), ("overlap", "bag"), ("null_threshold", 0.0)):
            if getattr(own, name) != allowed:
                why = f"{allowed}: every question has an answer, compared as TriviaQA does"
                raise ConfigError(name, getattr(own, name), why, fix=f"task.{name}={allowed}")
        self.windows, self.most_spans = own.windows, own.most_spans
        self.passage_weight = own.passage_weight

    def texts(self, example: Example) -> list[str]:
        return [example.fields["question"], example.fields["context"]]

    def encode(self, examples: Examples, tokenizer: Any) -> Rows:
        bare = next((e for e in examples if "passages" not in e.fields), None)
        if self.passage_weight and bare is not None:
            fix = "task.passage_weight=0, or files of plmctl data retrieve"
            raise DataError("its passages have no scores", file=bare.place, fix=fix)
        return super().encode(examples, tokenizer)

    def prior(self, example: Example, first: int) -> float:
        if not self.passage_weight:
            return 0.0
        begun = [score for begin, score in example.fields["passages"] if begin <= first]
        return self.passage_weight * begun[-1]

    def find_answer(self, passage: Passage, example: Example) -> list[tuple[int, int]]:
        """First and last token of each occurrence of an answer, in order."""
        return places.find_tokens(passage.offsets, example.label or ())

    def label_window(
        self, answer: Any, example: Example, first: int, length: int, row: Row
    ) -> np.ndarray:
        """[M, 2] the positions inside the window, spare ones IGNORE."""
        assert row.b_start is not None
        shift = row.b_start - first
        inside = [
            (start + shift, end + shift)
            for start, end in answer
            if start >= first and end < first + length
        ]
        return places.lay_out(inside, self.most_spans)

    def loss(self, logits: Mapping[str, Tensor], batch: Batch) -> Output:
        total, right = places.score(logits, batch.require("labels.span"))
        return Output({"span": Term(total)}, {"acc/span": (right, self.counts(batch)["span"])})

    def score(self, predictions: Predictions) -> dict[str, float]:
        """F1 and exact match with the best of the answer's names, in percent."""
        known = [p for p in predictions if p["golds"]]
        return {
            name: 100
            * sum(max(metric(g, p["guess"]) for g in p["golds"]) for p in known)
            / max(1, len(known))
            for name, metric in (("f1", matching.f1), ("exact", matching.exact))
        }
