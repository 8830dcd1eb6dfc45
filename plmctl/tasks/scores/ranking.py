"""Scores of rankings as trec_eval defines them, and the order of documents with equal scores."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from plmctl.core.errors import ConfigError

Gains = Sequence[int]  # the grades of the ranked documents, best first; 0: not relevant
# the score of a ranking, from it and the grades of all relevant documents
Score = Callable[[Gains, Gains], float]


def reciprocal_rank(ranked: Gains, relevant: Gains) -> float:
    """`1 / rank` of the first relevant document; 0 where none is found."""
    return next((1 / rank for rank, grade in enumerate(ranked, 1) if grade > 0), 0.0)


def ndcg(ranked: Gains, relevant: Gains, depth: int | None = None) -> float:
    """`DCG / ideal DCG`, `DCG = sum_r grade_r / log2(r + 1)` (Jarvelin and Kekalainen, 2002; the
    gain is the grade itself). The ideal ranking is cut at `depth`, too.
    """
    ideal = _discount(sorted(relevant, reverse=True)[:depth])
    return _discount(ranked) / ideal if ideal else 0.0


def _discount(grades: Gains) -> float:
    return math.fsum(grade / math.log2(rank + 1) for rank, grade in enumerate(grades, 1))


def recall(ranked: Gains, relevant: Gains) -> float:
    """The share of the relevant documents that are found."""
    return sum(grade > 0 for grade in ranked) / len(relevant) if relevant else 0.0


def average_precision(ranked: Gains, relevant: Gains) -> float:
    """The mean over all relevant documents of the precision at their rank; 0 for documents that are
    not in the ranking.
    """
    precisions, found = [], 0
    for rank, grade in enumerate(ranked, 1):
        if grade > 0:
            found += 1
            precisions.append(found / rank)
    return math.fsum(precisions) / len(relevant) if relevant else 0.0


KINDS: dict[str, Score] = {
    "mrr": reciprocal_rank,
    "ndcg": ndcg,
    "recall": recall,
    "map": average_precision,
}
_NAME = re.compile(rf"({'|'.join(KINDS)}|precision)(?:@([1-9]\d*))?")


def check_ranking_metrics(names: Sequence[str], depth: int) -> list[str]:
    """`names` as they are; ConfigError for one that is none, or that looks further than a ranking
    is long.
    """
    for name in names:
        match = _NAME.fullmatch(name)
        if match is None or (match[1] == "precision" and not match[2]):
            kinds = ", ".join(f"{kind}@10" for kind in (*KINDS, "precision"))
            allowed = f"such as {kinds}; without @ over the whole ranking"
            raise ConfigError("task.metrics", list(names), allowed, fix="task.metrics=[mrr@10]")
        if match[2] and int(match[2]) > depth:
            allowed = f"at most task.depth={depth} documents are ranked"
            raise ConfigError("task.metrics", name, allowed, fix=f"task.depth={match[2]}")
    return list(names)


def measure(name: str, ranked: Gains, relevant: Gains) -> float:
    """The metric `name` of one ranking."""
    kind, _, number = name.partition("@")
    depth = int(number) if number else None
    ranked = ranked[:depth]
    if kind == "precision":
        return sum(grade > 0 for grade in ranked) / int(number)
    if kind == "ndcg":
        return ndcg(ranked, relevant, depth)
    return KINDS[kind](ranked, relevant)


def score_each(
    predictions: Iterable[Mapping[str, Any]], names: Sequence[str]
) -> Iterator[dict[str, float]]:
    """The metrics of each question, which has `gold`, `grades` and `guess`: the relevant documents,
    how relevant they are, and the ranking.
    """
    for prediction in predictions:
        grades = dict(zip(prediction["gold"], prediction["grades"], strict=True))
        ranked = [grades.get(name, 0) for name in prediction["guess"]]
        yield {name: measure(name, ranked, list(grades.values())) for name in names}


def average(scores: Sequence[Mapping[str, float]], names: Sequence[str]) -> dict[str, float]:
    """The mean of each metric over questions or sets; 0 without any."""
    return {name: statistics.fmean(each[name] for each in scores or [{name: 0}]) for name in names}


def score_rankings(
    predictions: Iterable[Mapping[str, Any]], names: Sequence[str]
) -> dict[str, float]:
    """The mean of each metric over questions."""
    return average([*score_each(predictions, names)], names)


def order_ties(names: Sequence[str]) -> np.ndarray:
    """[n] the rank of each name in falling order. If documents have equal scores, trec_eval puts
    the one first whose name is the larger one, byte by byte.
    """
    order = sorted(range(len(names)), key=lambda number: names[number].encode(), reverse=True)
    places = np.empty(len(names), dtype=np.int64)
    places[order] = np.arange(len(names))
    return places


def take_best(scores: np.ndarray, places: np.ndarray, top: int) -> np.ndarray:
    """The numbers of the `top` largest of `scores [n]`, in order; of equal ones those with the
    lower rank.
    """
    kept = np.arange(len(scores))
    if top < len(scores):
        kept = np.flatnonzero(scores >= np.partition(scores, -top)[-top])
    return kept[np.lexsort((places[kept], -scores[kept]))[:top]]
