"""Vectors of texts by triplets: nearer to a text that belongs to it than to one that does not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from plmctl.core.batch import Batch, Rows
from plmctl.core.errors import ConfigError, DataError
from plmctl.core.parts import part_of
from plmctl.heads.sentences import SENTENCE
from plmctl.objectives.base import Output, Term
from plmctl.tasks.bi_encoder import BatchCandidates, BiEncoderSettings, VectorRanking
from plmctl.tasks.record import Examples


@dataclass(frozen=True, kw_only=True)
class SentenceTripletsSettings(BiEncoderSettings):
    """Settings of triplets.

    Args:
        margin: The margin by which a wrong text has to be farther away.
    """

    pooling: str = "mean"
    margin: float = 1.0


@part_of("task")
class SentenceTriplets(VectorRanking):
    """`max(|a - p| - |a - n| + margin, 0)`, a the vector of a text, p of one that belongs to it and
    n of one that does not, with Euclidean distance; the mean over the pairs p, n of a
    (Reimers and Gurevych, 2019, arXiv:1908.10084, sec. 3, "triplet objective function").
    """

    Settings: ClassVar[type[SentenceTripletsSettings]] = SentenceTripletsSettings

    def __init__(self, **settings: Any) -> None:
        own = self.Settings(**settings)
        super().__init__(own)
        if own.margin <= 0:
            raise ConfigError("task.margin", own.margin, "above 0", fix="task.margin=1.0")
        self.margin = own.margin

    def encode(self, examples: Examples, tokenizer: Any) -> Rows:
        for example in examples:
            known = len(example.fields["positives"])
            if example.label is not None and len(self.documents_of(example)) == known:
                fix = "task.columns.negatives=<its column>, or task=bi_encoder"
                raise DataError("a triplet needs a negative", file=example.place, fix=fix)
        return super().encode(examples, tokenizer)

    def as_queries(self, vectors: np.ndarray) -> np.ndarray:
        """[q; -1], so that the product with `[2 d; |d|^2]` orders by distance: it is
        `|q|^2 - |q - d|^2`, halves aside.
        """
        return np.concatenate([vectors, -np.ones_like(vectors[:, :1])], axis=1)

    def as_documents(self, vectors: np.ndarray) -> np.ndarray:
        lengths = np.square(vectors).sum(1, keepdims=True)
        return np.concatenate([2 * vectors, lengths], axis=1)

    def loss(self, logits: Mapping[str, Tensor], batch: Batch) -> Output:
        found, count = BatchCandidates.of(batch.values), self.counts(batch)[SENTENCE]
        return self.nested.add_up(lambda each: self._compare(each, found, count), logits[SENTENCE])

    def _compare(self, vectors: Tensor, found: BatchCandidates, count: int) -> Output:
        wide = vectors.to(torch.promote_types(vectors.dtype, torch.float32))
        a, d = wide[found.is_question], wide[~found.is_question]
        far = torch.cdist(a, d, compute_mode="donot_use_mm_for_euclid_dist")  # [Q, D]
        wrong = found.own & found.negative
        pairs = found.positive[:, :, None] & wrong[:, None]  # [Q, D, D]
        excess = (far[:, :, None] - far[:, None] + self.margin).clamp(min=0)
        each = excess.masked_fill(~pairs, 0).sum((1, 2)) / pairs.sum((1, 2)).clamp(min=1)
        nearest = far.masked_fill(~wrong, torch.inf).amin(1)
        right = (far.masked_fill(~found.positive, torch.inf).amin(1) < nearest).sum()
        return Output({SENTENCE: Term(each.sum())}, {"acc/sentence": (right, count)})
