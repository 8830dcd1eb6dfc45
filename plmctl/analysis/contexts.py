"""One word in several contexts: how much its vectors change (Ethayarajh, 2019), and its nearest
other occurrence (Peters et al., 2018, tab. 4).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import torch
from torch import Tensor

from plmctl.analysis.probing import read_states
from plmctl.artifacts.loading import Loaded
from plmctl.attack.word_text import WordText
from plmctl.core.errors import DataError
from plmctl.text.inputs import need_lines

MOST = 200  # sentences with the word


@dataclass(frozen=True)
class Occurrences:
    """A word in the sentences that have it.

    Args:
        word: The word as its user wrote it.
        words: The words of each sentence, and the marks between them.
        found: The number of the word in each sentence, of its first part if it has several.
    """

    word: str
    sentences: Sequence[str]
    words: Sequence[Sequence[str]]
    found: Sequence[int]


@dataclass(frozen=True)
class SelfSimilarity:
    """The likeness of the vectors of one word in different sentences.

    Args:
        likeness: The mean cosine of two occurrences, by layer, the embeddings first.
        floor: The same of any two words of these sentences.
        nearest: The number of the occurrence with the largest cosine in the last layer, for each
            one.
        cosines: The largest cosine of each occurrence.
    """

    likeness: list[float]
    floor: list[float]
    nearest: list[int]
    cosines: list[float]

    @classmethod
    def of(cls, opened: Loaded, given: Occurrences) -> Self:
        """Measure a model on a word.

        `SelfSim_l(w) = mean of cos(f_l(s_j), f_l(s_k)) over j != k` (Ethayarajh, 2019,
        arXiv:1909.00512, sec. 3.3), with f_l the state of the first piece of a word.
        Differs: the floor is the mean over all pairs of words of these sentences, not of 1,000
        drawn ones (sec. 3.4).

        Raises:
            DataError: A row of the model ends before the word.
        """
        states = read_states(opened, given.words, range(len(given.words)))
        own = [(number, word) for number, word in enumerate(given.found)]
        if lost := next((number for number, word in own if (number, word) not in states), None):
            raise DataError(
                f"the rows of this model end before '{given.word}' in:"
                f" {given.sentences[lost][:60]}..."
            )
        units = _normalise(torch.stack([states[each] for each in own], 1))
        everything = _normalise(torch.stack(list(states.values()), 1))
        last = (units[-1] @ units[-1].T).fill_diagonal_(-torch.inf)
        cosines, nearest = last.max(-1)
        return cls(_mean_pairs(units), _mean_pairs(everything), nearest.tolist(), cosines.tolist())


def find_occurrences(word: str, file: Path) -> Occurrences:
    """The first 200 lines of a file that have a word, in any case of letters.

    Raises:
        DataError: Fewer than two lines have it.
    """
    if not file.is_file():
        raise DataError("no such file", file=file)
    wanted = _split(word.lower())
    sentences: list[str] = []
    words: list[list[str]] = []
    found: list[int] = []
    for _, line in need_lines(file):
        own = _split(line)
        lower = [each.lower() for each in own]
        starts = range(len(own) - len(wanted) + 1) if wanted else range(0)
        start = next((n for n in starts if lower[n : n + len(wanted)] == wanted), None)
        if start is not None and len(found) < MOST:
            sentences.append(line.strip())
            words.append(own)
            found.append(start)
    if len(found) < 2:
        counted = "no line has" if not found else "only one line has"
        raise DataError(
            f"{counted} the word '{word}'; at least two are needed, a sentence each", file=file
        )
    return Occurrences(word, sentences, words, found)


def _split(text: str) -> list[str]:
    return [piece.strip() for piece in WordText.of(text).pieces if piece.strip()]


def _normalise(states: Tensor) -> Tensor:
    """[L + 1, N, W] vectors of length 1."""
    return states.double() / states.double().norm(dim=-1, keepdim=True).clamp_min(1e-12)


def _mean_pairs(units: Tensor) -> list[float]:
    """By layer, the mean of `u_j . u_k` over j != k: `(|sum_j u_j|^2 - sum_j |u_j|^2) / (n^2 -
    n)`.
    """
    count = units.shape[1]
    sums = units.sum(1).square().sum(-1) - units.square().sum((1, 2))
    return (sums / (count * count - count)).tolist()  # type: ignore[no-any-return]
