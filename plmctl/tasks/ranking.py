"""Ranking texts for questions: what encoders of questions and texts, and of both together, have in
common.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from plmctl.core.errors import ConfigError
from plmctl.core.values import Count, Whole
from plmctl.tasks.facts import TaskFacts
from plmctl.tasks.readers.ranking import make_question
from plmctl.tasks.record import Example, Examples, Predictions
from plmctl.tasks.scores.ranking import check_ranking_metrics, score_rankings
from plmctl.tasks.search import Ranked
from plmctl.tasks.task import Task, TaskSettings

BM25 = "bm25"


@dataclass(frozen=True, kw_only=True)
class RankingSettings(TaskSettings):
    """Settings of ranking.

    Args:
        negatives: The number of negatives of a question that are read, the first ones.
        depth: documents of a ranking.
        beside: rankings that `plmctl eval` scores, too: "bm25".
        causal: no token of the model sees a later one.
    """

    negatives: Whole = 1
    depth: Count = 100
    beside: Sequence[str] = ()
    causal: bool = False


def rank_others(
    search: Callable[..., Iterable[Ranked]], examples: Examples, names: Sequence[str], *, top: int
) -> Iterator[Ranked]:
    """The `top` texts of each question by a `search(top=)`, without the text that is the
    question itself: BEIR leaves it out of its scores (Thakur et al., 2021; its code,
    `ignore_identical_ids`).
    """
    itself = [example.fields.get("itself") for example in examples]
    numbers = {name: number for number, name in enumerate(names)} if any(itself) else {}
    for name, found in zip(itself, search(top=top + bool(numbers)), strict=True):
        other = found.numbers != numbers.get(name or "", -1)
        yield Ranked(found.numbers[other][:top], found.scores[other][:top])


class RankingTask(Task):
    """Questions, each with texts that answer it and texts that do not.

    In training, `predict` ranks the texts of a split alone; `plmctl eval` ranks the whole corpus.
    """

    facts = TaskFacts(chooses=False, ranks=True, typed="questions that you type, one a line")
    first: str | None = None  # the search whose texts it orders again; None: its own vectors

    Settings: ClassVar[type[RankingSettings]] = RankingSettings

    def __init__(self, own: RankingSettings) -> None:
        super().__init__(own, metrics=check_ranking_metrics(own.metrics, own.depth))
        self.negatives, self.depth, self.beside = own.negatives, own.depth, list(own.beside)
        for name in self.beside:
            if name != BM25:
                raise ConfigError("task.beside", self.beside, f"[{BM25}] or []")

    def parse(self, line: str, number: int) -> Example:
        if not line.strip():
            raise ValueError("no question")
        return make_question(str(number - 1), line.strip(), {}, {}, f"line {number}")

    def unit(self, example: Example) -> str:
        return str(example.fields["query"])

    def texts(self, example: Example) -> list[str]:
        return [example.fields["query"], *self.documents_of(example).values()]

    def gold_of(self, example: Example) -> list[str]:
        return list(example.fields["positives"])

    def fit_labels(self, examples: Iterable[Example]) -> None:
        pass  # each question names its right texts

    def read_corpus(self, split: str) -> dict[str, str]:
        """{id: text} of all that is searched for the questions of a split."""
        found: dict[str, str] = self.splits.reader.read_corpus(  # type: ignore[attr-defined]
            self.splits.path, split, self.columns
        )
        return found

    def documents_of(self, example: Example) -> dict[str, str]:
        """{id: text} of the texts that are read with a question: its positives, then its first
        negatives.
        """
        negatives = list(example.fields["negatives"].items())[: self.negatives]
        return {**example.fields["positives"], **dict(negatives)}

    @staticmethod
    def write_rankings(
        examples: Examples, ranked: Iterable[Ranked], names: Sequence[str]
    ) -> list[dict[str, Any]]:
        """The relevant documents of each question with their grades, and the ranking."""
        return [
            {
                "id": e.id,
                "gold": list(e.fields["positives"]),
                "grades": [e.fields["grades"][name] for name in e.fields["positives"]],
                "guess": [names[number] for number in own.numbers],
                "scores": np.asarray(own.scores, np.float64).tolist(),
            }
            for e, own in zip(examples, ranked, strict=True)
        ]

    def score(self, predictions: Predictions) -> dict[str, float]:
        return score_rankings(predictions, self.metrics)
