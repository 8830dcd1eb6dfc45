"""Sparse encoders: a question and a text have a weight for each token of the vocabulary, mostly 0,
so that an inverted index searches them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from torch import Tensor
from torch.optim import Optimizer

from plmctl.core.batch import Batch, Rows
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.core.values import Share
from plmctl.heads.base import about_of
from plmctl.heads.sentences import LM, SENTENCE
from plmctl.models.base import Model
from plmctl.objectives.base import Contrast, Output, Term
from plmctl.tasks.bi_encoder import (
    BatchCandidates,
    BiEncoderSettings,
    VectorRanking,
    compare_products,
)
from plmctl.tasks.facts import ModelNeeds
from plmctl.tasks.record import Arrays, Examples
from plmctl.tasks.search import Ranked
from plmctl.tasks.term_vectors import TermVectors, search_terms

QUERY_FLOPS, TEXT_FLOPS = "query_flops", "text_flops"


@dataclass(frozen=True, kw_only=True)
class SparseEncoderSettings(BiEncoderSettings):
    """Settings of a sparse encoder.

    Args:
        query_flops: The weight of the FLOPS penalty of questions.
        text_flops: The weight of that of texts.
        rise: The share of the run in which both weights rise from 0, with its square; None:
            they do not rise.
    """

    pooling: str = "splade"
    query_flops: float = 5e-5
    text_flops: float = 3e-5
    rise: Share | None = 0.33


@part_of("task")
class SparseEncoder(VectorRanking):
    """`L = L_rank + query_flops F(q) + text_flops F(d)`. Vectors are the weights w of the
    vocabulary (`weigh_terms`), and `L_rank` is the loss of `BiEncoder` by products.
    `F(w) = sum_v (1/N sum_i w_iv)^2`, over the N questions, or the N texts, of an update (SPLADE,
    Formal et al., 2021, arXiv:2107.05720, sec. 3.2; arXiv:2109.10086, sec. 3). In the first `rise`
    of the run, at share s, both weights count `(s / rise)^2` times (arXiv:2109.10086, sec. 4).

    Differs: negatives as in `BiEncoder`; no teacher of a cross-encoder.
    """

    Settings: ClassVar[type[SparseEncoderSettings]] = SparseEncoderSettings

    poolings, sparse = ("splade",), True
    facts = replace(VectorRanking.facts, contrasts=True, head=LM, own_label=SENTENCE, outputs=0)
    requires = ModelNeeds(reads_ids=True, heads_about="text")

    def __init__(self, **settings: Any) -> None:
        own = self.Settings(**settings)
        super().__init__(own)
        terms = frozenset({SENTENCE, QUERY_FLOPS, TEXT_FLOPS})
        lm = frozenset({LM})
        measures = frozenset({"active/query", "active/text"})
        self.facts = replace(
            self.facts, heads=lm, terms=terms, at_every_token=lm, measures=measures
        )
        usual = BiEncoderSettings(name="", reader=own.reader, max_length=1, metrics=())
        for name in ("likeness", "matryoshka", "dimensions", "index"):
            if (value := getattr(own, name)) != getattr(usual, name):
                allowed = f"{getattr(usual, name)}: weights of the vocabulary are searched whole"
                raise ConfigError(f"task.{name}", value, allowed, fix="leave it out")
        self.temperature, self.rise = own.temperature, own.rise
        self.flops = {QUERY_FLOPS: own.query_flops, TEXT_FLOPS: own.text_flops}
        self.reached = 0.0  # the share of the run that is done

    def check_model(self, model: Model, vocab_size: int = 0) -> None:
        if about_of(model.heads[LM]) != "text":
            allowed = "a model that fills masks; this one predicts the next token"
            raise ConfigError("task", self.name, allowed, fix="task=bi_encoder")

    def before_step(self, model: Model, optimizer: Optimizer, share: float) -> None:
        super().before_step(model, optimizer, share)
        self.reached = share

    @property
    def risen(self) -> float:
        """The factor of the weights of penalties now."""
        return min(1.0, self.reached / self.rise) ** 2 if self.rise else 1.0

    def counts(self, batch: Batch) -> dict[str, int]:
        return {**super().counts(batch), **dict.fromkeys(self.flops, 1)}

    def loss(self, logits: Mapping[str, Tensor], batch: Batch) -> Output:
        beside = {name: batch.require(f"values.{name}") for name in ("kind", "text")}
        group = {"group": batch.require("values.group")}
        return Contrast(self.compare, dict(logits), beside, group).output(SENTENCE)

    def compare(self, vectors: Mapping[str, Tensor], beside: Mapping[str, Tensor]) -> Output:
        """The loss of all questions of an update, and the penalties."""
        found, weights = BatchCandidates.of(beside), vectors[SENTENCE]
        ranked = compare_products(weights, found, self.temperature)
        parts = {QUERY_FLOPS: weights[found.is_question], TEXT_FLOPS: weights[~found.is_question]}
        terms = {
            name: Term(part.mean(0).square().sum(), self.flops[name] * self.risen, count=1)
            for name, part in parts.items()
        }
        active = {
            f"active/{name}": ((part > 0).sum(), len(part))
            for name, part in zip(("query", "text"), parts.values(), strict=True)
        }
        return Output({**ranked.terms, **terms}, {**ranked.logs, **active})

    def search(
        self, queries: Any, documents: Any, names: Sequence[str], *, top: int
    ) -> Iterator[Ranked]:
        """As in `VectorRanking`, of `TermVectors`."""
        return search_terms(queries, documents, names, top=top)

    def predict(self, logits: Arrays, rows: Rows, examples: Examples) -> list[dict[str, Any]]:
        terms: Any = TermVectors.of(logits[SENTENCE])
        return super().predict({SENTENCE: terms}, rows, examples)
