"""Clusters of mentions in a document with the same meaning, by ranking the antecedents of spans."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from plmctl.core.batch import Batch, Rows
from plmctl.core.errors import ConfigError, DataError
from plmctl.core.fields import Field
from plmctl.core.parts import part_of
from plmctl.core.values import Count, Share
from plmctl.heads.features import read as features_of
from plmctl.heads.span_rank import SpanRank
from plmctl.models.base import Model
from plmctl.noise.base import Noise
from plmctl.objectives.base import Output, Term
from plmctl.tasks.answers.coreference import (
    DocumentSpans,
    find_spans,
    join_links,
    link,
    measure,
    rank,
)
from plmctl.tasks.facts import TaskFacts
from plmctl.tasks.layouts import coreference as coreference_rows
from plmctl.tasks.layouts import encode
from plmctl.tasks.layouts.coreference import SegmentRun, encode_documents
from plmctl.tasks.record import Arrays, Example, Examples, Predictions
from plmctl.tasks.scores import coreference as coreference_score
from plmctl.tasks.scores.metrics import check_metrics
from plmctl.tasks.task import Task, TaskSettings
from plmctl.text.vocab import Vocab

FEW = 4  # spans of a document, of which hardly two are linked


@dataclass(frozen=True, kw_only=True)
class CoreferenceSettings(TaskSettings):
    """Settings of coreference.

    Args:
        max_words: The words of a span, at most.
        kept: lambda: so many spans are kept for each word of a document.
        max_antecedents: The antecedents of a span that are scored in full, at most.
        max_rows: The rows of a document in one update, from a random one on; None: all.
        joiner: The text between the words of a sentence.
    """

    max_words: Count
    kept: Share
    max_antecedents: Count
    max_rows: Count | None = None
    joiner: str = " "


@part_of("task")
class Coreference(Task):
    """Predicts the antecedent of every span, or that it has none (Lee et al., 2017,
    arXiv:1707.07045; Lee et al., 2018, arXiv:1804.05392; on BERT: Joshi et al., 2019,
    arXiv:1908.09091, "independent").

    Spans of at most `max_words` words of a sentence; the `kept` T best of T words that do not
    cross; of each the `max_antecedents` best by mention scores and the bilinear one. The loss of a
    document is `- sum_i log sum_(j in GOLD(i)) P(j | i)`. Mentions that are linked are a cluster.
    Differs: no higher-order refinement of spans; spans begin and end with words, not with pieces;
    no genre, no prior of distances; lengths and distances in the buckets of Lee et al. (2017).
    """

    fields: Mapping[str, Field] = {
        "labels.coreference": Field("[N]", "int", "0 at the first row of a document with clusters"),
        "values.word_places": coreference_rows.WORDS,
        "values.speakers": coreference_rows.SPEAKERS,
        "values.clusters": coreference_rows.CLUSTERS,
    }
    facts = TaskFacts(
        needs=frozenset({"text", "labels.coreference", "values.word_places"}),
        head="coreference",
        outputs=1,
        chooses=False,
        has_classes=False,
        typed="documents that you type, one a line, with spaces between words",
    )

    Settings = CoreferenceSettings

    def __init__(self, **settings: Any) -> None:
        own = CoreferenceSettings(**settings)
        super().__init__(own, metrics=check_metrics(own.metrics, coreference_score.NAMES))
        self.max_words, self.kept, self.joiner = own.max_words, own.kept, own.joiner
        self.max_antecedents, self.max_rows = own.max_antecedents, own.max_rows
        encode.refuse_causal(self.settings.sees_later, "a mention is read with the text after it")
        self._lost, self._mentions, self._short, self._read = 0, 0, 0, 0

    @property
    def remarks(self) -> list[str]:
        long = (
            f"{self._lost:,} of {self._mentions:,} mentions are longer than"
            f" task.max_words={self.max_words}, or not in one sentence of a row, and are never"
            " found"
        )
        short = (
            f"{self._short:,} of {self._read:,} documents are so short that task.kept={self.kept:g}"
            f" spans a word keep fewer than {FEW} spans, or fewer spans than mentions. Others are"
            " never found; task.kept=1 keeps more"
        )
        return [long] * bool(self._lost) + [short] * bool(self._short)

    def parse(self, line: str, number: int) -> Example:
        fields = {"sentences": [line.split() or [""]], "speakers": []}
        return Example(str(number - 1), fields, place=f"line {number}")

    def texts(self, example: Example) -> list[str]:
        return [self.joiner.join(words) for words in example.fields["sentences"]]

    def unit(self, example: Example) -> str:
        """Parts of one document stay on one side."""
        return example.id.partition("; part ")[0]

    def fit_labels(self, examples: Iterable[Example]) -> None:
        examples = list(examples)
        if not any(len(own) > 1 for example in examples for own in example.label):
            fix = "task.columns.clusters=<the column of the clusters>"
            raise DataError("no cluster has two mentions", file=examples[0].place, fix=fix)

    def noise(self, vocab: Vocab) -> Noise | None:
        return None if self.max_rows is None else SegmentRun(most=self.max_rows)

    def encode(self, examples: Examples, tokenizer: Any) -> Rows:
        rows, lost = encode_documents(
            examples,
            tokenizer,
            max_length=self.max_length,
            longest=self.max_words,
            joiner=self.joiner,
            pooling=self.pooling,
        )
        self._lost += lost
        mentions = [sum(map(len, each.label or ())) for each in examples]
        words = [sum(map(len, each.fields["sentences"])) for each in examples]
        kept = [self._keep(number) for number in words]
        self._mentions, self._read = self._mentions + sum(mentions), self._read + len(examples)
        self._short += sum(
            own < max(FEW, needed) for own, needed in zip(kept, mentions, strict=True)
        )
        if "clusters" not in rows.values:
            return rows
        return encode.add_labels(rows, {"coreference": np.zeros(len(examples), dtype=np.int64)})

    def logits(self, model: Model, batch: Batch) -> dict[str, Tensor]:
        """`links [B, M, L]`: of each span, by its row, first word and words - 1, the code of its
        antecedent, 0 where it has none; `costs [B]`: the loss of a document at its first row.
        """
        head = model.heads[self.facts.head]
        if not isinstance(head, SpanRank):
            raise ConfigError(f"heads.{self.facts.head}", type(head).__name__, "a SpanRank")
        states = features_of(model, batch)  # [B, T, W]
        words = batch.require("values.word_places")
        links = torch.zeros(
            *words.shape[:2], self.max_words, dtype=torch.float32, device=words.device
        )
        costs = torch.zeros(len(words), dtype=torch.float32, device=words.device)
        for rows in self._documents(batch):
            spans = self._find(batch, rows)
            if not len(spans):
                continue
            kept = self._keep(int((words[rows, :, 0] >= 0).sum()))
            ranking = rank(
                head, states[rows], spans, kept=kept, most_antecedents=self.max_antecedents
            )
            costs = costs.index_put((rows[:1],), measure(ranking).to(costs.dtype))
            for one, other in link(ranking):
                row, first, more = ranking.spans.cell[one].tolist()
                start, end = ranking.spans.words[other].tolist()
                links[rows[row], first, more] = 1 + start * self.max_words + end - start
        return {"links": links, "costs": costs}

    def _keep(self, words: int) -> int:
        """The number of spans that stay, for so many words."""
        return max(1, int(self.kept * words))

    @staticmethod
    def _documents(batch: Batch) -> list[Tensor]:
        """The numbers of the rows of each document."""
        group = batch.require("values.group")
        return [(group == number).nonzero()[:, 0] for number in group.unique().tolist()]

    def _find(self, batch: Batch, rows: Tensor) -> DocumentSpans:
        words = batch.require("values.word_places")[rows]
        clusters = None
        if "clusters" in batch.values:
            gold = batch.values["clusters"][rows]  # [R, G, 3]
            clusters = words.new_zeros(*words.shape[:2], self.max_words)
            row, place = (gold[..., 0] >= 0).nonzero().unbind(-1)
            first, more, cluster = gold[row, place].unbind(-1)
            clusters[row, first, more] = cluster
        return find_spans(words, batch.require("values.speakers")[rows], clusters, self.max_words)

    def loss(self, logits: Mapping[str, Tensor], batch: Batch) -> Output:
        return Output({self.facts.head: Term(logits["costs"].sum())}, {})

    def predict(self, logits: Arrays, rows: Rows, examples: Examples) -> list[dict[str, Any]]:
        found: list[list[Any]] = [[] for _ in examples]
        for row, first, more in np.argwhere(logits["links"] > 0).tolist():
            start, length = divmod(int(logits["links"][row, first, more]) - 1, self.max_words)
            begin = int(rows.values["word_places"][row, first, 3])
            mentions = (begin, begin + more), (start, start + length)
            found[int(rows.values["example"][row])].append(mentions)
        return [
            self._describe(example, join_links(links))
            for example, links in zip(examples, found, strict=True)
        ]

    def _describe(self, example: Example, clusters: list[list[list[int]]]) -> dict[str, Any]:
        words = [word for own in example.fields["sentences"] for word in own]
        gold = example.label
        return {
            "id": example.id,
            "gold": None if gold is None else [[list(pair) for pair in own] for own in gold],
            "guess": clusters,
            "texts": [
                [self.joiner.join(words[first : last + 1]) for first, last in own]
                for own in clusters
            ],
        }

    def describe_metric(self, name: str) -> str:
        mean = "mean of the F1 of MUC, B3 and CEAF-e, as in CoNLL-2012"
        return mean if name == coreference_score.MEAN else ""

    def score(self, predictions: Predictions) -> dict[str, float]:
        gold, guess = (
            [[[tuple(mention) for mention in own] for own in each[side]] for each in predictions]
            for side in ("gold", "guess")
        )
        found = coreference_score.score_clusters(gold, guess)
        return {name: found[name] for name in self.metrics}
