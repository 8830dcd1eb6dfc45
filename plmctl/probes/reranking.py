"""How well a model orders the candidates of a question, the right ones first (eval only). A
cross-encoder does so by its scores, any other model by the likeness of vectors.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np

from plmctl.config.build import build
from plmctl.core.errors import ConfigError, DataError
from plmctl.core.parts import part_of
from plmctl.core.terminal import counted
from plmctl.core.values import Count
from plmctl.probes.base import Opened, Probe
from plmctl.probes.ranking import cut, score_pairs, tabulate
from plmctl.probes.retrieval import choose_likeness, read_vectors
from plmctl.probes.sentence_similarity import PATTERNS
from plmctl.tasks.predictions import write_rows
from plmctl.tasks.ranking import BM25
from plmctl.tasks.readers.judged import SHOWN, JudgedQuery, read_judged
from plmctl.tasks.readers.split_files import SplitFiles
from plmctl.tasks.retrieval import Retriever
from plmctl.tasks.scores.ranking import check_ranking_metrics, order_ties, take_best
from plmctl.tasks.term_vectors import TermVectors
from plmctl.use.asked_task import describe_model
from plmctl.use.predict import ScoreTable, Told
from plmctl.use.sentence_vectors import choose_pooling


@part_of("probe")
@dataclass(frozen=True, kw_only=True)
class Reranking(Probe):
    """Means over questions of the scores of trec_eval for the order of their candidates (Wang et
    al., 2007: TrecQA; Rao et al., 2016, for its "clean" and "raw" set).

    Args:
        path: A file of questions with candidates (tasks/readers/judged.py), a folder of the files
            of splits, or several files.
        questions: "clean": those with right and with wrong candidates. "raw": all; one without
            a right candidate scores 0.
        metrics: The metrics, over a ranking or at a depth.
        pooling: The vector of a text, as of `Retrieval`; for a cross-encoder its own score counts
            where this is None.
        likeness: The likeness of two vectors: "cosine", or "dot"; None: as the model was trained.
        beside: Further rankings to score: "bm25", whose word counts are of all candidates.
        max_length: tokens of a text at most, special ones included.
        dimensions: The first columns of vectors that are compared; None: all.
    """

    path: str | Sequence[str]
    questions: Literal["clean", "raw"] = "clean"
    metrics: Sequence[str] = ("map", "mrr")
    pooling: str | None = None
    likeness: Literal["cosine", "dot"] | None = None
    beside: Sequence[str] = ()
    max_length: int | None = None
    dimensions: Count | None = None

    def __post_init__(self) -> None:
        check_ranking_metrics(self.metrics, sys.maxsize)
        if unknown := [name for name in self.beside if name != BM25]:
            raise ConfigError("task.beside", unknown[0], f"[{BM25}] or []")

    def measure(self, opened: Opened) -> ScoreTable:
        """The scores of the model, and of the searches in `beside`."""
        out = opened.claim_file("rankings.jsonl")
        file = SplitFiles(splits=PATTERNS).need(self.path, opened.split)
        every = list(read_judged(file))
        chosen = [each for each in every if each.mixed or self.questions == "raw"]
        if not chosen:
            what = "no question has right and wrong candidates" if every else "no questions"
            raise DataError(what, file=file, fix="task.questions=raw" if every else SHOWN)
        texts = [text for each in chosen for text in each.texts]
        how, scores = self._judge(opened, chosen, texts)
        rows = {"model": list(_rank(chosen, scores))}
        if BM25 in self.beside:
            rows[BM25] = list(_rank(chosen, _score_words(chosen, texts)))
        extra: dict[str, Any] = {"checkpoint": opened.folder, **how}
        ordered = f"{counted(len(texts), 'candidate')} of {counted(len(chosen), 'question')}"
        extra["ordered"] = Told(ordered, len(texts))
        if left := len(every) - len(chosen):
            extra["left out"] = Told(
                f"{counted(left, 'question')} with right or with wrong candidates alone", left
            )
        if out is not None:
            written = [{"search": name, **row} for name in rows for row in rows[name]]
            extra["rankings"] = str(write_rows(out, written))
        return tabulate(f"reranking: {opened.split}", rows, self.metrics, extra)

    def _judge(
        self, opened: Opened, asked: Sequence[JudgedQuery], texts: Sequence[str]
    ) -> tuple[dict[str, Any], np.ndarray]:
        """(a description, [texts] scores): those of a cross-encoder, or products of vectors."""
        loaded, node = opened.loaded, opened.loaded.own_task()
        if self.pooling is None and node:
            given = describe_model(loaded, opened.plugins)
            task = build(node, given, opened.plugins, path="task")
            if task.facts.scores_pairs:
                pairs = [(each.query, text) for each in asked for text in each.texts]
                return {"scores": "question and text together"}, score_pairs(opened, task, pairs)
        pooling = choose_pooling(loaded, self.pooling, path="task.pooling")
        likeness = choose_likeness(self.likeness, pooling)
        q, d = read_vectors(
            opened,
            pooling,
            [each.query for each in asked],
            texts,
            max_length=self.max_length,
            dimensions=self.dimensions,
            likeness=likeness,
        )
        how = {"pooling": pooling.words, "likeness": likeness}
        multiply = TermVectors.multiply if pooling.sparse else partial(np.einsum, "nw,nw->n")
        question = np.repeat(np.arange(len(asked)), [len(each.texts) for each in asked])
        return how, multiply(q[question], d)


def _score_words(asked: Sequence[JudgedQuery], texts: Sequence[str]) -> np.ndarray:
    """[texts] by BM25 with the counts of the candidates of all questions."""
    retriever = Retriever(texts)
    own = cut(np.arange(len(texts)), [each.texts for each in asked])
    scores = [retriever.score(each.query)[part] for each, part in zip(asked, own, strict=True)]
    return np.concatenate(scores)


def _rank(asked: Sequence[JudgedQuery], scores: np.ndarray) -> Iterator[dict[str, Any]]:
    """A prediction for each question; candidates are named by their numbers, from 0."""
    for each, own in zip(asked, cut(scores, [each.texts for each in asked]), strict=True):
        names = [*map(str, range(len(each.texts)))]
        best = take_best(own, order_ties(names), len(names))
        right = [number for number, grade in enumerate(each.grades) if grade > 0]
        yield {
            "id": each.id,
            "gold": [names[number] for number in right],
            "grades": [each.grades[number] for number in right],
            "guess": [names[number] for number in best],
            "scores": own[best].astype(float).tolist(),
        }
