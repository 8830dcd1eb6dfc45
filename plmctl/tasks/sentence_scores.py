"""How alike two texts are, as the cosine of the vector of each: SBERT's objective on STS."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from torch import Tensor
from torch.nn import functional as F

from plmctl.core.batch import IGNORE, Batch, Rows
from plmctl.core.errors import ConfigError, DataError
from plmctl.core.fields import Field
from plmctl.core.parts import part_of
from plmctl.heads.sentences import SENTENCE, embed_text
from plmctl.models.base import Model
from plmctl.objectives.base import Output, Term
from plmctl.tasks.facts import TaskFacts
from plmctl.tasks.layouts import encode
from plmctl.tasks.layouts.apart import PLACE, check_pooling, encode_apart, put_first, split_pairs
from plmctl.tasks.layouts.texts import parse_texts
from plmctl.tasks.readers.read_score import read_score
from plmctl.tasks.record import Example
from plmctl.tasks.scores.metrics import CORRELATIONS, check_metrics
from plmctl.tasks.task import Task, TaskSettings

SIMILARITY = "similarity"  # the name of the labels


@dataclass(frozen=True, kw_only=True)
class SentenceScoresSettings(TaskSettings):
    """Settings of the likeness of two texts.

    Args:
        pooling: The vector of a text (heads/sentences.py).
        scale: the scores that mean a cosine of 0 and of 1.
        causal: no token of the model sees a later one.
    """

    pooling: str = "mean"
    scale: Sequence[float] = (0.0, 5.0)
    causal: bool = False


@part_of("task")
class SentenceScores(Task):
    """`(cos(u, v) - y)^2`, u and v the vectors of the two texts, each read by itself. The score y
    is brought from its scale to [0, 1] (Reimers and Gurevych, 2019, arXiv:1908.10084, sec. 3,
    "regression objective function"; released code for the scale).
    """

    fields: Mapping[str, Field] = {
        "values.place": PLACE,
        "labels.similarity": Field(
            "[N]", "float", "score of the pair, on [0, 1], at its first row"
        ),
    }
    embeds = True
    facts = TaskFacts(
        needs=frozenset({"text", "labels.similarity", "values.group", "values.place"}),
        head=SENTENCE,
        answer="number",
        chooses=False,
        pipeline="sentence-similarity",
        outputs=1,
    )

    Settings: ClassVar[type[SentenceScoresSettings]] = SentenceScoresSettings

    def __init__(self, **settings: Any) -> None:
        own = self.Settings(**settings)
        super().__init__(own, metrics=check_metrics(own.metrics, CORRELATIONS))
        check_pooling(own.pooling, causal=own.causal)
        if len(own.scale) != 2 or not own.scale[0] < own.scale[1]:
            allowed = "two scores, the lower one first"
            raise ConfigError("task.scale", list(own.scale), allowed, fix="task.scale=[0,5]")
        self.low, self.high = own.scale

    def parse(self, line: str, number: int) -> Example:
        return parse_texts(line, number, self.columns)

    def gold_of(self, example: Example) -> float:
        return self._read(example)

    def fit_labels(self, examples: Iterable[Example]) -> None:
        for example in examples:
            self._read(example)

    def _read(self, example: Example) -> float:
        try:
            value = float(example.label)
        except (TypeError, ValueError):
            value = math.nan
        if not self.low <= value <= self.high:
            raise DataError(
                f"the score '{example.label}' is no number from {self.low:g} to {self.high:g}",
                file=example.place,
                fix="task.scale=[<lowest>,<highest>], or check task.columns.label",
            )
        return read_score(example.label, example.place)

    def encode(self, examples: Sequence[Example], tokenizer: Any) -> Rows:
        rows = encode_apart(
            [[str(e.fields["text"]), str(e.fields["text2"])] for e in examples],
            tokenizer,
            max_length=self.max_length,
            pooling=self.pooling,
            transform=self.transform,
        )
        if any(example.label is None for example in examples):
            return rows
        scores = np.array([self._read(example) for example in examples], dtype=np.float32)
        return encode.add_labels(rows, {SIMILARITY: (scores - self.low) / (self.high - self.low)})

    def logits(self, model: Model, batch: Batch) -> dict[str, Tensor]:
        place = batch.require("values.place")
        u, v = split_pairs(embed_text(model, batch, self.pooling), place)  # [E, W] each
        return {SENTENCE: put_first(F.cosine_similarity(u, v, dim=-1), place)}  # [B]

    def counts(self, batch: Batch) -> dict[str, int]:
        return {SENTENCE: batch.counts[SIMILARITY], **self.transform.counts(batch)}

    def loss(self, logits: Mapping[str, Tensor], batch: Batch) -> Output:
        gold = batch.require("labels.similarity")
        error = (logits[SENTENCE].float() - gold).masked_fill(gold == IGNORE, 0)
        return Output({SENTENCE: Term(error.square().sum())})

    def predict(
        self, logits: Mapping[str, np.ndarray], rows: Rows, examples: Sequence[Example]
    ) -> list[dict[str, Any]]:
        guesses = logits[SENTENCE][encode.firsts(rows)]
        return [
            {"id": e.id, "gold": None if e.label is None else self._read(e), "guess": float(guess)}
            for e, guess in zip(examples, guesses, strict=True)
        ]

    def score(self, predictions: Sequence[Mapping[str, Any]]) -> dict[str, float]:
        gold, guess = [p["gold"] for p in predictions], [p["guess"] for p in predictions]
        return {name: CORRELATIONS[name](gold, guess) for name in self.metrics}
