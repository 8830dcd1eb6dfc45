"""Bi-encoders: questions and texts become vectors apart, and the product of two of them says
whether they belong together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from plmctl.core.batch import Batch, Rows
from plmctl.core.errors import ConfigError
from plmctl.core.fields import Field
from plmctl.core.parts import part_of
from plmctl.core.values import Count
from plmctl.heads.sentences import SENTENCE, embed_text, take_columns
from plmctl.models.base import Model
from plmctl.objectives.base import Contrast, Output, Term
from plmctl.objectives.contrast import multiply
from plmctl.tasks.layouts import encode
from plmctl.tasks.layouts.apart import PLACE, POOLINGS, check_pooling, encode_apart
from plmctl.tasks.nested import Nested
from plmctl.tasks.ranking import RankingSettings, RankingTask
from plmctl.tasks.record import Arrays, Examples
from plmctl.tasks.search import Index, Ranked, search_vectors

QUESTION, POSITIVE, NEGATIVE = 0, 1, 2  # values.kind
ASKED = "asked"  # the name of the labels
NONE = -1e30  # a score that counts for nothing, with a gradient of 0


@dataclass(frozen=True, kw_only=True)
class BiEncoderSettings(RankingSettings):
    """Settings of a bi-encoder.

    Args:
        pooling: The vector of a text (heads/sentences.py).
        likeness: The likeness of two vectors: their "cosine", or their "dot" product.
        temperature: divides it.
        matryoshka: The numbers of first columns for which the loss is computed, too.
        dimensions: The first columns that a search compares; None: all.
        index: The search in a corpus: "exact", by all products, by "faiss", or by vectors of
            "int8" or "binary" numbers.
    """

    pooling: str = "first"
    likeness: Literal["cosine", "dot"] = "dot"
    temperature: float = 1.0
    matryoshka: Sequence[Count] = ()
    dimensions: Count | None = None
    index: Index = "exact"


class VectorRanking(RankingTask):
    """Rows of questions and texts apart, and rankings by the product of their vectors."""

    fields: Mapping[str, Field] = {
        "values.place": PLACE,
        "values.kind": Field(
            "[n]", "int", "0 of a question, 1 of a text that answers it, 2 of another one"
        ),
        "values.text": Field("[n]", "int", "number of the text; equal texts have the same"),
        "labels.asked": Field("[N]", "int", "0 at the row of a question to score"),
    }
    embeds = True
    poolings: ClassVar[Sequence[str]] = POOLINGS  # those of the setting
    sparse: ClassVar[bool] = False  # whether `search` takes `TermVectors`
    facts = replace(
        RankingTask.facts,
        needs=frozenset({"text", "labels.asked", "values.group", "values.kind", "values.text"}),
        head=SENTENCE,
        pipeline="sentence-similarity",
        outputs=1,
    )

    def __init__(self, own: BiEncoderSettings) -> None:
        super().__init__(own)
        check_pooling(own.pooling, causal=own.causal, known=self.poolings)
        allowed = "a task that predicts labels: vectors alone are no predictions"
        error = ConfigError("task", own.name, allowed, fix="stabiliser=[]")
        self.facts = replace(self.facts, incomparable=error)
        self.index: Index = own.index
        self.nested, self.dimensions = Nested(own.matryoshka), own.dimensions

    def check_model(self, model: Model, vocab_size: int = 0) -> None:
        self.nested.check(model)

    def encode(self, examples: Examples, tokenizer: Any) -> Rows:
        documents = [self.documents_of(example) for example in examples]
        texts = [
            [str(e.fields["query"]), *own.values()]
            for e, own in zip(examples, documents, strict=True)
        ]
        rows = encode_apart(self, texts, tokenizer)
        kind = [
            number
            for e, own in zip(examples, documents, strict=True)
            for number in (
                QUESTION,
                *(POSITIVE if name in e.fields["positives"] else NEGATIVE for name in own),
            )
        ]
        numbers: dict[str, int] = {}
        text = [numbers.setdefault(each, len(numbers)) for own in texts for each in own]
        rows = encode.add_values(rows, kind=np.array(kind), text=np.array(text))
        if any(example.label is None for example in examples):
            return rows
        return encode.add_labels(rows, {ASKED: np.zeros(len(examples), dtype=np.int64)})

    def counts(self, batch: Batch) -> dict[str, int]:
        return {SENTENCE: batch.counts[ASKED], **self.transform.counts(batch)}

    def logits(self, model: Model, batch: Batch) -> dict[str, Tensor]:
        return {SENTENCE: embed_text(model, batch, self.pooling)}  # [B, W]

    def as_queries(self, vectors: np.ndarray) -> np.ndarray:
        """[q, W'] of vectors [q, W] what is multiplied with `as_documents`."""
        return vectors

    def as_documents(self, vectors: np.ndarray) -> np.ndarray:
        """[n, W'] of vectors [n, W] what is multiplied with `as_queries`."""
        return vectors

    def search(
        self, queries: np.ndarray, documents: np.ndarray, names: Sequence[str], *, top: int
    ) -> Iterator[Ranked]:
        """The `top` documents for each question, by vectors [q, W] and [n, W] of a model."""
        q, d = (
            take_columns(each, self.dimensions, path="task.dimensions")
            for each in (queries, documents)
        )
        return search_vectors(
            self.as_queries(q), self.as_documents(d), names, top=top, index=self.index
        )

    def predict(self, logits: Arrays, rows: Rows, examples: Examples) -> list[dict[str, Any]]:
        firsts, vectors = encode.firsts(rows), logits[SENTENCE]
        places = {
            name: first + 1 + number
            for e, first in zip(examples, firsts, strict=True)
            for number, name in enumerate(self.documents_of(e))
        }
        names = list(places)
        documents = vectors[list(places.values())]
        ranked = self.search(vectors[firsts], documents, names, top=self.depth)
        return self.write_rankings(examples, ranked, names)


@dataclass(frozen=True)
class BatchCandidates:
    """The relation of the rows of a batch to its Q questions, with D texts.

    Args:
        is_question: [B] which rows are questions.
        positive: [Q, D] the texts that answer a question.
        negative: [Q, D] the wrong texts: all others of the batch, also those of other questions,
            but not the same text as a positive.
        own: [Q, D] the texts that are read for this question.
    """

    is_question: Tensor
    positive: Tensor
    negative: Tensor
    own: Tensor

    @classmethod
    def of(cls, values: Mapping[str, Tensor]) -> BatchCandidates:
        """Those of rows with these `kind`, `group` and `text`."""
        kind, group, text = (values[name] for name in ("kind", "group", "text"))
        asked, shown = kind == QUESTION, kind != QUESTION
        own = group[asked][:, None] == group[shown]
        positive = own & (kind[shown] == POSITIVE)
        same = (text[shown][:, None] == text[shown]).float()  # [D, D]
        return cls(asked, positive, (positive.float() @ same) == 0, own)


@part_of("task")
class BiEncoder(VectorRanking):
    """`- log exp(s(q, p)) / (exp(s(q, p)) + sum_n exp(s(q, n)))`, s = likeness / temperature, n the
    negatives of the question and all texts of the other questions of the batch; the mean over the
    positives p of a question (Karpukhin et al., 2020, arXiv:2004.04906, sec. 3.2; with cosine, a
    temperature and contradictions as negatives: supervised SimCSE, Gao et al., 2021,
    arXiv:2104.08821, eq. 5).

    Differs: one encoder for questions and texts (DPR has two); other positives of a question, and
    texts equal to one, are no negatives.
    """

    Settings: ClassVar[type[BiEncoderSettings]] = BiEncoderSettings

    facts = replace(VectorRanking.facts, contrasts=True)

    def __init__(self, **settings: Any) -> None:
        own = self.Settings(**settings)
        super().__init__(own)
        if own.temperature <= 0:
            fix = "task.temperature=0.05"
            raise ConfigError("task.temperature", own.temperature, "above 0", fix=fix)
        self.likeness, self.temperature = own.likeness, own.temperature

    def as_queries(self, vectors: np.ndarray) -> np.ndarray:
        return unit(vectors) if self.likeness == "cosine" else vectors

    def as_documents(self, vectors: np.ndarray) -> np.ndarray:
        return self.as_queries(vectors)

    def loss(self, logits: Mapping[str, Tensor], batch: Batch) -> Output:
        beside = {name: batch.require(f"values.{name}") for name in ("kind", "text")}
        group = {"group": batch.require("values.group")}
        return Contrast(self.compare, dict(logits), beside, group).output(SENTENCE)

    def compare(self, vectors: Mapping[str, Tensor], beside: Mapping[str, Tensor]) -> Output:
        """The loss of all questions of an update."""
        found = BatchCandidates.of(beside)
        return self.nested.add_up(lambda each: self._compare(each, found), vectors[SENTENCE])

    def _compare(self, vectors: Tensor, found: BatchCandidates) -> Output:
        if self.likeness == "cosine":
            vectors = F.normalize(vectors, dim=-1)
        return compare_products(vectors, found, self.temperature)


def compare_products(vectors: Tensor, found: BatchCandidates, temperature: float) -> Output:
    """The loss of `BiEncoder` by the products of vectors [n, W] over the temperature, and how often
    the best text is a right one.
    """
    q, d = vectors[found.is_question], vectors[~found.is_question]
    scores = multiply(q, d) / temperature  # [Q, D]
    wrong = scores.masked_fill(~found.negative, NONE)
    losses = F.softplus(wrong.logsumexp(1, keepdim=True) - scores)  # [Q, D], of each positive
    each = losses.masked_fill(~found.positive, 0).sum(1) / found.positive.sum(1)
    best = scores.masked_fill(~found.positive, -torch.inf).amax(1)
    right = (best > wrong.amax(1)).sum()
    count = len(q)
    return Output({SENTENCE: Term(each.sum(), count=count)}, {"acc/sentence": (right, count)})


def unit(vectors: np.ndarray) -> np.ndarray:
    """[n, W] brought to length 1; zeros stay."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(lengths > 0, lengths, 1)
