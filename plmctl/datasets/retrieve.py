"""Passages for questions, from which a reader and a ranker learn."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from plmctl.datasets.opening import Taught
from plmctl.tasks.record import Example
from plmctl.tasks.retrieval import OpenQuestion, Retrieved, rerank

Rank = Callable[[Iterable[Retrieved]], list[Retrieved]]


@dataclass(frozen=True)
class Ranker:
    """A model that orders the passages of a question anew.

    Args:
        taught: A model that tells two classes of pairs apart, called 0 and 1.
        weight: The weight of its score; BM25 has the rest.
        top: The number of passages that stay.
    """

    taught: Taught
    weight: float
    top: int

    def __call__(self, found: Iterable[Retrieved]) -> list[Retrieved]:
        return [self._order(each) for each in found]

    def _order(self, each: Retrieved) -> Retrieved:
        examples = [
            Example(str(n), {"text": each.question.question, "text2": text})
            for n, text in enumerate(each.passages)
        ]
        rows = self.taught.predict("test", examples)
        chances = [row["probabilities"]["1"] for row in rows]
        return rerank(each, chances, weight=self.weight, top=self.top)


def spell_questions(found: Sequence[Retrieved]) -> Iterator[str]:
    """A JSON line for each question with its passages."""
    for each in found:
        row = {**_describe(each.question), "document": each.passages, "scores": each.scores}
        yield json.dumps(row, ensure_ascii=False) + "\n"


def spell_pairs(found: Sequence[Retrieved]) -> Iterator[str]:
    """A table of pairs for a ranker: question, passage, and whether it holds an answer."""
    yield "text\ttext2\tlabel\n"
    for each in found:
        for text, holds in zip(each.passages, each.places, strict=True):
            yield f"{_flat(each.question.question)}\t{_flat(text)}\t{int(holds)}\n"


def _describe(question: OpenQuestion) -> dict[str, Any]:
    about: dict[str, Any] = question._asdict()
    return about | {"answers": list(question.answers)}


def _flat(text: str) -> str:
    return " ".join(text.split())
