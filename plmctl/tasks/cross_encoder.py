"""Cross-encoders: a model reads a question and a text together, and says how likely the text
answers it; they order again what something quicker has found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from torch import Tensor
from torch.nn import functional as F

from plmctl.core.batch import IGNORE, Batch, Rows
from plmctl.core.errors import DataError
from plmctl.core.fields import Field
from plmctl.core.parts import part_of
from plmctl.core.spelling import spell_setting
from plmctl.core.values import Count
from plmctl.models.base import Model
from plmctl.objectives.base import Output, Term
from plmctl.tasks.layouts import encode
from plmctl.tasks.layouts.texts import encode_texts
from plmctl.tasks.ranking import BM25, RankingSettings, RankingTask
from plmctl.tasks.record import Arrays, Example, Examples
from plmctl.tasks.scores.ranking import order_ties, take_best
from plmctl.tasks.search import Ranked
from plmctl.tasks.transform import pool_rows


@dataclass(frozen=True, kw_only=True)
class CrossEncoderSettings(RankingSettings):
    """Settings of a cross-encoder.

    Args:
        first: The first search of `plmctl eval`, whose texts are ordered again: "bm25", or a run of
            a bi-encoder.
        candidates: texts that it finds for each question.
    """

    first: str = BM25
    candidates: Count = 100


@part_of("task")
class CrossEncoder(RankingTask):
    """`- sum_p log s(q, p) - sum_n log(1 - s(q, n))`, s = sigmoid(head(pool([q; text]))), p the
    texts that answer a question and n its negatives; averaged over pairs (Nogueira and Cho, 2019,
    arXiv:1901.04085, sec. 3, "monoBERT").

    Differs: one logit, where the released code has two classes; a question is cut like the text,
    the longer one first, where theirs keeps 64 tokens of it.
    """

    fields: Mapping[str, Field] = {
        "labels.score": Field("[N]", "float", "1 for a text that answers the question, else 0")
    }
    facts = replace(
        RankingTask.facts,
        needs=frozenset({"text", "labels.score"}),
        head="score",
        pipeline="text-classification",
        outputs=1,
        scores_pairs=True,
    )

    Settings: ClassVar[type[CrossEncoderSettings]] = CrossEncoderSettings

    def __init__(self, **settings: Any) -> None:
        own = self.Settings(**settings)
        super().__init__(own)
        self.first: str = own.first
        self.candidates = own.candidates

    def describe_known(self, examples: Examples) -> list[str]:
        """Nothing; DataError where no text is wrong, from which a model learns to say yes."""
        if any(self.documents_of(e).keys() - e.fields["positives"].keys() for e in examples):
            return []
        files = spell_setting("task.path", self.splits.path)
        mine = f"plmctl data mine task=bi_encoder {files} out=mined"
        fix = f"{mine}, then task.path=mined" if self.negatives else "task.negatives=1"
        what = (
            "no question has a wrong text, so the model cannot learn to separate right from wrong"
        )
        raise DataError(what, file=self.splits.path, fix=fix)

    def encode_pairs(self, pairs: Sequence[tuple[str, str]], tokenizer: Any) -> Rows:
        """A row for each question with a text."""
        return encode_texts(
            [Example("", {"text": query, "text2": text}) for query, text in pairs],
            tokenizer,
            max_length=self.max_length,
            pooling=self.pooling,
            transform=self.transform,
            symmetric=False,
        )

    def encode(self, examples: Examples, tokenizer: Any) -> Rows:
        documents = [self.documents_of(example) for example in examples]
        pairs = [
            (str(e.fields["query"]), text)
            for e, own in zip(examples, documents, strict=True)
            for text in own.values()
        ]
        rows = self.encode_pairs(pairs, tokenizer)
        number = np.repeat(np.arange(len(examples)), [len(own) for own in documents])
        rows = encode.add_values(rows, example=number)
        right = [
            name in e.fields["positives"]
            for e, own in zip(examples, documents, strict=True)
            for name in own
        ]
        return encode.add_labels(rows, {"score": np.array(right, dtype=np.float32)})

    def logits(self, model: Model, batch: Batch) -> dict[str, Tensor]:
        rows = pool_rows(self, model, batch, together=True)
        return {"score": model.heads["score"](rows).squeeze(-1)}  # [B]

    def loss(self, logits: Mapping[str, Tensor], batch: Batch) -> Output:
        scores, gold = logits["score"].float(), batch.require("labels.score")
        known = gold != IGNORE
        each = F.binary_cross_entropy_with_logits(
            scores, gold.masked_fill(~known, 0), reduction="none"
        )
        right = (((scores > 0) == (gold > 0)) & known).sum()
        return Output(
            {"score": Term(each.masked_fill(~known, 0).sum())},
            {"acc/score": (right, self.counts(batch)["score"])},
        )

    def order(self, scores: np.ndarray, names: Sequence[str]) -> Ranked:
        """The ranking of documents by their scores."""
        best = take_best(scores, order_ties(names), self.depth)
        return Ranked(best, scores[best])

    def predict(self, logits: Arrays, rows: Rows, examples: Examples) -> list[dict[str, Any]]:
        """Each question ranks its own texts."""
        predictions = []
        for number, example in enumerate(examples):
            names = list(self.documents_of(example))
            scores = logits["score"][rows.values["example"] == number]
            ranked = [self.order(scores, names)]
            predictions += self.write_rankings([example], ranked, names)
        return predictions
