"""How alike words are, by vectors and by people: the published lists of word pairs (eval only;
Faruqui and Dyer, 2014, collect 13 of them).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from plmctl.core.errors import DataError
from plmctl.core.parts import part_of
from plmctl.core.terminal import counted
from plmctl.core.values import Count
from plmctl.tasks.readers import files
from plmctl.tasks.readers.read_score import read_score
from plmctl.tasks.scores.metrics import spearman
from plmctl.text.inputs import need_lines

LEAST = 10  # pairs of a list, whose correlation says something


class WordPair(NamedTuple):
    """Two words, and how alike people find them, on the scale of their list."""

    first: str
    second: str
    score: float


@part_of("task")
@dataclass(frozen=True, kw_only=True)
class WordSimilarity:
    """Spearman's correlation of the cosine of two vectors with the scores of a list, over the pairs
    whose words both have a vector; beside it, how many pairs these are.

    Args:
        path: a folder with lists, or one: `word <tab> word <tab> score` on each line.
        vectors: what stands for a word in a model: "input", the mean of the input embeddings of its
            tokens; "alone", the mean of their states in a row of the word alone; "contexts", the
            mean of its states in up to `contexts` sentences of data.path (Bommasani et al., 2020,
            arXiv 2020.acl-main.431, sec. 3: "decontextualised", mean over tokens, then over
            sentences).
        layer: whose states these are; 0 is the embedding output, -1 the last layer.
        contexts: sentences of a word at most.
        static: files of word vectors, as GloVe's, which are scored beside the model.
    """

    path: str
    vectors: Literal["input", "alone", "contexts"] = "input"
    layer: int = -1
    contexts: Count = 20
    static: Sequence[str] = ()

    def read(self) -> dict[str, list[WordPair]]:
        """{name of a list: its pairs}; DataError naming the first line that is none."""
        place = files.existing(self.path)
        lists = sorted(place.glob("*.txt")) if place.is_dir() else [place]
        if not lists:
            raise DataError("no lists *.txt here", file=place, fix="task.path=<folder of lists>")
        return {file.stem: _read_list(file) for file in lists}

    @staticmethod
    def score(
        lists: Mapping[str, Sequence[WordPair]], vectors: Mapping[str, np.ndarray]
    ) -> dict[str, float | None]:
        """{list: correlation, "<list> pairs": covered}, then the mean of the lists; of fewer than
        `LEAST` covered pairs there is no correlation (None), and they are not in the mean.

        Args:
            lists: as `read` gives them.
            vectors: [W] of every word that is covered.
        """
        scores: dict[str, float | None] = {}
        found = []
        for name, pairs in lists.items():
            covered = [pair for pair in pairs if pair.first in vectors and pair.second in vectors]
            guess = [_cosine(vectors[pair.first], vectors[pair.second]) for pair in covered]
            scores[name] = None
            if len(covered) >= LEAST:
                found.append(spearman([pair.score for pair in covered], guess))
                scores[name] = found[-1]
            scores[f"{name} pairs"] = len(covered)
        return {**scores, **({"mean": float(np.mean(found))} if found else {})}

    @staticmethod
    def describe_few(scores: Mapping[str, float | None]) -> str:
        """A sentence on the lists that `score` leaves out; "" where there are none."""
        few = [name for name, score in scores.items() if score is None]
        named = ", ".join(f"{name} {scores[f'{name} pairs']}" for name in few)
        why = f"fewer than {LEAST} known pairs ({named})"
        has = "has no correlation and is" if len(few) == 1 else "have no correlation and are"
        return f"{counted(len(few), 'list')} with {why} {has} not in the mean" if few else ""


def _cosine(first: np.ndarray, second: np.ndarray) -> float:
    norms = float(np.linalg.norm(first)) * float(np.linalg.norm(second))
    return float(first @ second) / norms if norms else 0.0


def _read_list(file: Path) -> list[WordPair]:
    pairs = []
    for number, line in need_lines(file):
        cells = line.split("\t") if "\t" in line else line.split()
        if not line.strip():
            continue
        try:
            first, second, score = (cell.strip() for cell in cells[:3])
            float(score)
        except ValueError:
            what = f"two words and a score are needed, found {line[:60]!r}"
            raise DataError(
                what, file=file, line=number, fix="car <tab> automobile <tab> 3.92"
            ) from None
        pairs.append(WordPair(first, second, read_score(score, file, line=number)))
    if not pairs:
        raise DataError("no pairs of words", file=file)
    return pairs
