"""Analogies of words: a is to b as c is to d (eval only; Mikolov et al., 2013)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from plmctl.core.errors import ConfigError, DataError
from plmctl.core.parts import part_of
from plmctl.core.spelling import spell_setting
from plmctl.core.values import Count
from plmctl.knowledge.static_vectors import StaticVectors
from plmctl.knowledge.vector_files import read_static, refuse_uncovered
from plmctl.probes.base import Opened, Probe
from plmctl.tasks.readers import files
from plmctl.text.inputs import need_lines
from plmctl.use.predict import ScoreTable

_TOGETHER = 256  # questions that are answered at the same time
_SMALL = 1e-3  # epsilon of 3CosMul
GRAMMAR = "gram"  # how sections on grammar begin


class WordAnalogy(NamedTuple):
    """first is to second as third is to fourth, the answer."""

    first: str
    second: str
    third: str
    fourth: str


@part_of("probe")
@dataclass(frozen=True, kw_only=True)
class WordAnalogies(Probe):
    """The share of questions with the right answer, among the questions whose four words have
    vectors. The answer is any other word than the three of the question.

    `by="add"`, 3CosAdd: the largest `cos(x, b) - cos(x, a) + cos(x, c)`; `by="mul"`, 3CosMul: the
    largest `s(x, b) s(x, c) / (s(x, a) + 0.001)`, `s = (1 + cos) / 2` (Levy and Goldberg, 2014,
    W14-1618, eq. 3 and 5).

    Args:
        path: a file as Google's question-words.txt: `: name` begins a section, four words a line
            are a question.
        by: see above.
        words: the first ones of the vectors, among which answers are looked for (word2vec's
            compute-accuracy: 30,000).
    """

    path: str
    by: Literal["add", "mul"] = "add"
    words: Count = 30_000

    def read(self) -> dict[str, list[WordAnalogy]]:
        """{section: its questions}; DataError naming the first line that is none."""
        file = files.existing(self.path)
        sections: dict[str, list[WordAnalogy]] = {}
        name = file.stem
        for number, line in need_lines(file):
            cells = line.split()
            if cells[:1] == [":"] or line.startswith(":"):
                name = line[1:].strip()
            elif len(cells) == 4:
                sections.setdefault(name, []).append(WordAnalogy(*cells))
            elif cells:
                what = f"four words are needed, or a colon and a name; found {line[:60]!r}"
                fix = "Athens Greece Oslo Norway"
                raise DataError(what, file=file, line=number, fix=fix)
        if not sections:
            raise DataError("no questions", file=file, fix="Athens Greece Oslo Norway")
        return sections

    def score(
        self, sections: Mapping[str, Sequence[WordAnalogy]], vectors: StaticVectors
    ) -> dict[str, float]:
        """{section: accuracy, "<section> covered": share of its questions}, then both over all
        questions, and accuracy over those of meaning and of grammar (sections "gram...").
        """
        lower = _lower(vectors, self.words)
        scores: dict[str, float] = {}
        hits: dict[str, list[bool]] = {"meaning": [], "grammar": []}
        asked = 0
        for name, questions in sections.items():
            rows = [[lower.number.get(word.lower(), -1) for word in each] for each in questions]
            known = np.array([each for each in rows if min(each) >= 0], np.int64).reshape(-1, 4)
            right = self._answer(lower.unit, known[:, :3]) == known[:, 3]
            hits["grammar" if name.startswith(GRAMMAR) else "meaning"] += right.tolist()
            asked += len(questions)
            scores |= {name: float(right.mean())} if len(right) else {}
            scores[f"{name} covered"] = len(known) / len(questions)
        for name, own in {**hits, "all": hits["meaning"] + hits["grammar"]}.items():
            scores |= {name: float(np.mean(own))} if own else {}
        return {**scores, "covered": sum(map(len, hits.values())) / asked}

    def _answer(self, unit: np.ndarray, asked: np.ndarray) -> np.ndarray:
        """[n] the row of the answer to each question.

        Args:
            unit: [N, D] vectors of length 1.
            asked: [n, 3] the rows of a, b, c.
        """
        found = [np.zeros(0, np.int64)]
        for start in range(0, len(asked), _TOGETHER):
            some = asked[start : start + _TOGETHER]
            a, b, c = (unit[some[:, n]] @ unit.T for n in range(3))  # [n, N]
            if self.by == "mul":
                scores = (1 + b) * (1 + c) / 4 / ((1 + a) / 2 + _SMALL)
            else:
                scores = b - a + c
            np.put_along_axis(scores, some, -np.inf, 1)
            found.append(scores.argmax(1))
        return np.concatenate(found)

    def measure(self, opened: Opened) -> ScoreTable:
        """Raise ConfigError: analogies need static vectors."""
        model = spell_setting("checkpoint", opened.checkpoint)
        fix = f"plmctl vectors method=distilled {model} out=words.vec"
        allowed = "task=word_analogies is for files of word vectors, and this is a model"
        raise ConfigError("checkpoint", opened.checkpoint, allowed, fix=fix)

    def measure_vectors(self, file: Path) -> ScoreTable:
        """The accuracies of static vectors."""
        sections = self.read()
        vectors = read_static(file, limit=self.words)
        scores, questions = self.score(sections, vectors), sum(map(len, sections.values()))
        fix = "vectors in the language of the questions"
        known = round(scores["covered"] * questions)
        refuse_uncovered(known, questions, "questions", file=file, fix=fix)
        extra = {"vectors": str(file), "questions": questions}
        return ScoreTable("word analogies", {file.name: scores}, extra)


def _lower(vectors: StaticVectors, limit: int) -> StaticVectors:
    """The first words in lower case; the first of words that are equal then (Paris, paris)."""
    rows: dict[str, int] = {}
    for row, word in enumerate(vectors.words[:limit]):
        rows.setdefault(word.lower(), row)
    return StaticVectors(list(rows), vectors.table[list(rows.values())])
