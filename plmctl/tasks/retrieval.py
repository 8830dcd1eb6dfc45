"""Open-domain questions: passages of a text for each, found by BM25 (Robertson and Zaragoza, 2009),
as a reader and a ranker learn from them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, NotRequired, TypedDict

import numpy as np

from plmctl.core.errors import DataError
from plmctl.core.extras import require_library
from plmctl.core.values import fit
from plmctl.storage.reading import parse_json_at
from plmctl.tasks.readers.squad import SquadFiles
from plmctl.tasks.scores.trivia import find_all, split_words
from plmctl.text.inputs import need_lines
from plmctl.text.letters import compose, find_words, separate
from plmctl.text.reader import read_documents
from plmctl.text.tabular import kind_of

_SHOWN = '{"id": "q1", "question": "...", "answers": ["..."]}'


class OpenQuestion(NamedTuple):
    """A question without a text in which its answer stands."""

    id: str
    question: str
    answers: tuple[str, ...]


@dataclass(frozen=True)
class Retrieved:
    """A question with the passages that were found for it, best first."""

    question: OpenQuestion
    passages: list[str]
    scores: list[float]

    @cached_property
    def places(self) -> list[bool]:
        """Whether an answer stands in each passage (distant supervision)."""
        answers = self.question.answers
        firsts = {words[0].text for answer in answers if (words := split_words(answer))}
        lowered = [compose(text.lower()) for text in self.passages]
        return [
            any(first in lower for first in firsts) and bool(find_all(answers, text))
            for text, lower in zip(self.passages, lowered, strict=True)
        ]


class _Line(TypedDict):
    question: str
    id: NotRequired[str]
    answers: NotRequired[list[str]]


def read_questions(file: Path) -> list[OpenQuestion]:
    """The questions of a file with JSON lines of `id`, `question`, `answers`, or in SQuAD's layout,
    whose texts are not used; each question once.

    Raises:
        DataError: naming the first line that is none.
    """
    found: dict[str, OpenQuestion] = {}
    if kind_of(file) == ".json":
        for example in SquadFiles(splits={}).read_file(file, {}):
            fields = example.fields
            answers = tuple(dict.fromkeys(fields["answers"]))
            found.setdefault(
                fields["question"], OpenQuestion(example.id, fields["question"], answers)
            )
    else:
        for number, text in need_lines(file):
            if text.strip():
                one = _read_line(parse_json_at(text, file=file, line=number), file, number)
                found.setdefault(one.question, one)
    if not found:
        raise DataError("no questions", file=file, fix=_SHOWN)
    return list(found.values())


def _read_line(value: Any, file: Path, number: int) -> OpenQuestion:
    try:
        line: _Line = fit(value, _Line)
    except ValueError as error:
        raise DataError(f"no question: {error}", file=file, line=number, fix=_SHOWN) from error
    return OpenQuestion(
        line.get("id", str(number)), line["question"], tuple(line.get("answers", ()))
    )


def read_passages(path: str, words: int) -> list[str]:
    """The passages of a text: paragraphs of one document joined, up to `words` words; a longer
    paragraph is cut.
    """
    return [
        passage
        for document in read_documents(path)
        for passage in cut_passages(document.paragraphs, words)
    ]


def cut_passages(paragraphs: Iterable[str], words: int) -> Iterator[str]:
    """As `read_passages`, of one document."""
    held: list[str] = []
    for paragraph in paragraphs:
        parts = paragraph.split()
        if held and len(held) + len(parts) > words:
            yield " ".join(held)
            held = []
        held += parts
        while len(held) > words:
            yield " ".join(held[:words])
            held = held[words:]
    if held:
        yield " ".join(held)


class Retriever:
    """BM25 over passages, by the library bm25s (Lucene's form of it).

    Args:
        passages: The passages to search.
        k1: The saturation of further occurrences of a word.
        b: The discount of long passages.
    """

    def __init__(self, passages: Sequence[str], *, k1: float = 0.9, b: float = 0.4) -> None:
        library = require_library("bm25s", "retrieval", "finding passages")
        self.passages = passages
        self._index = library.BM25(k1=k1, b=b)
        self._index.index([split_units(text) for text in passages], show_progress=False)

    def score(self, question: str) -> np.ndarray:
        """[passages] the score of every passage."""
        return np.asarray(self._index.get_scores(split_units(question)))

    def find(self, questions: Sequence[OpenQuestion], top: int) -> Iterator[Retrieved]:
        """The `top` passages of each question, best first; of equal ones the earlier passages."""
        top = min(top, len(self.passages))
        for question in questions:
            scores = self.score(question.question)
            best = np.argsort(-scores, kind="stable")[:top]
            texts = [self.passages[number] for number in best]
            yield Retrieved(question, texts, scores[best].round(4).tolist())


def rerank(each: Retrieved, chances: Sequence[float], *, weight: float, top: int) -> Retrieved:
    """The `top` passages by `weight` times what a ranker says of each, and the rest of one times
    its share of BM25 (the softmax of all scores).

    Args:
        each: a question with its passages.
        chances: The probability that each passage has the answer.
        top: passages that are kept.
    """
    scores = np.array(each.scores)
    shares = np.exp(scores - scores.max())
    mixed = weight * np.array(chances) + (1 - weight) * shares / shares.sum()
    best = np.argsort(-mixed, kind="stable")[:top]
    texts = [each.passages[number] for number in best]
    return Retrieved(each.question, texts, mixed[best].tolist())


def split_units(text: str) -> list[str]:
    """The units that are compared: words in lower case, and of scripts without spaces single
    characters.
    """
    words = (word[0] for word in find_words(compose(text.lower())))
    return [unit for word in words for unit in separate(word).split()] or [""]


def measure_recall(found: Sequence[Retrieved], ranks: Iterable[int]) -> dict[str, float]:
    """{"recall@k": the share of questions whose answer stands in one of the first k passages}."""
    hits = [each.places for each in found]
    return {
        f"recall@{k}": sum(any(places[:k]) for places in hits) / max(1, len(hits)) for k in ranks
    }
