"""How alike two texts are, as the cosine of the vector of each: SBERT's objective on STS."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from plmctl.core.batch import IGNORE, Batch, Rows
from plmctl.core.errors import ConfigError, DataError
from plmctl.core.fields import Field
from plmctl.core.parts import part_of
from plmctl.core.values import Count
from plmctl.heads.sentences import SENTENCE, embed_text, take_columns
from plmctl.models.base import Model
from plmctl.objectives.base import Contrast, Output, Term
from plmctl.tasks.facts import TaskFacts
from plmctl.tasks.layouts import encode
from plmctl.tasks.layouts.apart import PLACE, check_pooling, encode_apart, put_first, split_pairs
from plmctl.tasks.layouts.texts import parse_texts
from plmctl.tasks.nested import Nested
from plmctl.tasks.pair_losses.base import PairLoss
from plmctl.tasks.pair_losses.squared import SquaredError
from plmctl.tasks.readers.read_score import read_score
from plmctl.tasks.record import Arrays, Example, Examples, Predictions
from plmctl.tasks.scores.labels import name_sets
from plmctl.tasks.scores.metrics import CORRELATIONS, check_metrics
from plmctl.tasks.scores.numbers import NumberScores
from plmctl.tasks.task import Task, TaskSettings

SIMILARITY = "similarity"  # the name of the labels
RATED = "rated"  # the likenesses that the loss reads, as logits


@dataclass(frozen=True, kw_only=True)
class SentenceScoresSettings(TaskSettings):
    """Settings of the likeness of two texts.

    Args:
        pooling: The vector of a text (heads/sentences.py).
        loss: The loss of the vectors of pairs.
        scale: the scores that mean a cosine of 0 and of 1.
        matryoshka: The numbers of first columns for which the loss is computed, too.
        dimensions: The first columns whose cosines are predicted; None: all.
        causal: no token of the model sees a later one.
    """

    pooling: str = "mean"
    loss: PairLoss = field(default_factory=SquaredError)
    scale: Sequence[float] = (0.0, 5.0)
    matryoshka: Sequence[Count] = ()
    dimensions: Count | None = None
    causal: bool = False


@part_of("task")
class SentenceScores(Task):
    """A loss of the vectors u and v of two texts, each read by itself, such as `(cos(u, v) - y)^2`.
    The score y is brought from its scale to [0, 1] (Reimers and Gurevych, 2019, arXiv:1908.10084,
    sec. 3; released code for the scale).
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
        self.pair_loss, self.dimensions = own.loss, own.dimensions
        self.nested = Nested(own.matryoshka)
        self.facts = replace(self.facts, contrasts=own.loss.compares)

    def check_model(self, model: Model, vocab_size: int = 0) -> None:
        self.nested.check(model)

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
            problem = f"the score '{example.label}' is no number from {self.low:g} to {self.high:g}"
            fix = "task.scale=[<lowest>,<highest>], or check task.columns.label"
            raise DataError(problem, file=example.place, fix=fix)
        return read_score(example.label, example.place)

    def encode(self, examples: Examples, tokenizer: Any) -> Rows:
        texts = [[str(e.fields["text"]), str(e.fields["text2"])] for e in examples]
        rows = encode_apart(self, texts, tokenizer)
        if any(example.label is None for example in examples):
            return rows
        scores = np.array([self._read(example) for example in examples], dtype=np.float32)
        return encode.add_labels(rows, {SIMILARITY: (scores - self.low) / (self.high - self.low)})

    def logits(self, model: Model, batch: Batch) -> dict[str, Tensor]:
        place = batch.require("values.place")
        u, v = split_pairs(embed_text(model, batch, self.pooling), place)  # [E, W] each
        first, second = (take_columns(x, self.dimensions, path="task.dimensions") for x in (u, v))
        cosines = F.cosine_similarity(first, second, dim=-1)
        pairs = zip(self.nested.cut(u), self.nested.cut(v), strict=True)
        rated = torch.stack([self.pair_loss.rate(*pair) for pair in pairs], 1)  # [E, 1 + M, S]
        return {SENTENCE: put_first(cosines, place), RATED: put_first(rated, place)}  # [B, ...]

    def counts(self, batch: Batch) -> dict[str, int]:
        return {SENTENCE: batch.counts[SIMILARITY], **self.transform.counts(batch)}

    def loss(self, logits: Mapping[str, Tensor], batch: Batch) -> Output:
        gold = batch.require("labels.similarity")
        known = gold != IGNORE
        rated = {RATED: logits[RATED][known].float()}
        contrast = Contrast(self.compare, rated, {SIMILARITY: gold[known]})
        return contrast.output(SENTENCE) if self.pair_loss.compares else contrast.alone

    def compare(self, rated: Mapping[str, Tensor], beside: Mapping[str, Tensor]) -> Output:
        """The loss of pairs with these likenesses and scores."""
        gold, widths = beside[SIMILARITY], rated[RATED].unbind(1)
        totals = [self.pair_loss.sum_up(own, gold) for own in widths]
        return Output({SENTENCE: Term(torch.stack(totals).sum(), count=len(gold))})

    def predict(self, logits: Arrays, rows: Rows, examples: Examples) -> list[dict[str, Any]]:
        guesses = logits[SENTENCE][encode.firsts(rows)]
        return [
            {
                "id": e.id,
                "gold": None if e.label is None else self._read(e),
                "guess": float(guess),
                **name_sets(e),
            }
            for e, guess in zip(examples, guesses, strict=True)
        ]

    def score(self, predictions: Predictions) -> dict[str, float]:
        return NumberScores()(predictions, self.metrics)
