"""A text in pieces whose windows are products of matrices: rows of words beside the words around
them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from plmctl.vectors.corpus import WordCorpus
from plmctl.vectors.noise_words import NoiseWords

BLOCK = 1 << 20  # words that are prepared at the same time


@dataclass(frozen=True)
class WindowSettings:
    """How a text is cut.

    Args:
        reach: words on each side of a window at most.
        sample: t of `share_kept`; 0: all words stay.
        row: words of a row, T.
        rows: of an update, M.
        shared: negatives that the words of a row share, N.
    """

    reach: int
    sample: float
    row: int
    rows: int
    shared: int


@dataclass(frozen=True, eq=False)
class WordRows:
    """Rows of words, and which others are in the window of each.

    Args:
        around: int64 [M, T + 2 W] the words, with the W before and behind each row.
        inside: bool [M, T, T + 2 W] whether a word is in the window of another.
        negatives: int64 [M, N].
        done: words of the text that have been read so far.
    """

    around: Tensor
    inside: Tensor
    negatives: Tensor
    done: int

    @property
    def words(self) -> Tensor:
        """int64 [M, T] the words themselves."""
        reach = (self.around.shape[1] - self.inside.shape[1]) // 2
        return self.around[:, reach : reach + self.inside.shape[1]]


def share_kept(counts: np.ndarray, sample: float) -> np.ndarray:
    """[V] `sqrt(t / f) + t / f`, at most 1, with f the share of a word in the text: how much of it
    stays (word2vec's own code; the paper has only the root).
    """
    if not sample:
        return np.ones(len(counts))
    relative = sample * counts.sum() / counts
    return np.minimum(np.sqrt(relative) + relative, 1)


def read_rows(
    corpus: WordCorpus, settings: WindowSettings, noise: NoiseWords, generator: np.random.Generator
) -> Iterator[WordRows]:
    """Rows of one pass over the text: frequent words are left out by chance, then each word draws
    the reach of its window from 1 .. W.
    """
    kept, done = share_kept(corpus.counts, settings.sample), 0
    for words, sentences in corpus.read_blocks(BLOCK):
        stay = np.flatnonzero(generator.random(len(words), np.float32) < kept[words])
        if len(stay):
            left, right = draw_reaches(sentences[stay], settings.reach, generator)
            negatives = -(-len(stay) // settings.row), settings.shared
            drawn = noise.draw(generator, negatives)
            yield from _cut(words[stay], left, right, drawn, settings, done + stay)
        done += len(words)


def draw_reaches(
    sentences: np.ndarray, reach: int, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """How many words on its left and right are in the window of each word, int64 [n] both: a reach
    drawn from 1 .. W, which ends where the sentence ends.
    """
    drawn = generator.integers(1, reach + 1, len(sentences))
    begins = np.concatenate([[True], sentences[1:] != sentences[:-1]])
    starts = np.flatnonzero(begins)
    lengths = np.diff(np.append(starts, len(sentences)))
    before = np.arange(len(sentences)) - np.repeat(starts, lengths)
    behind = np.repeat(lengths, lengths) - before - 1
    return np.minimum(drawn, before), np.minimum(drawn, behind)


def _cut(
    words: np.ndarray,
    left: np.ndarray,
    right: np.ndarray,
    negatives: np.ndarray,
    settings: WindowSettings,
    places: np.ndarray,
) -> Iterator[WordRows]:
    """The rows of a block of words, of which the last is filled with words without a window."""
    row, reach, count = settings.row, settings.reach, len(words)
    size = len(negatives) * row
    padded = np.zeros(size + 2 * reach, np.int64)
    padded[reach : reach + count] = words
    sides = np.zeros((2, size, 1), np.int64)
    sides[0, :count, 0], sides[1, :count, 0] = left, right
    around = torch.from_numpy(padded).unfold(0, row + 2 * reach, row)  # [all rows, T + 2 W]
    before, behind = torch.from_numpy(sides).view(2, -1, row, 1)
    drawn = torch.from_numpy(negatives)
    # [T, T + 2 W] how far each column is from each row
    offset = torch.arange(row + 2 * reach)[None] - reach - torch.arange(row)[:, None]
    near = (offset != 0)[None]
    for start in range(0, len(negatives), settings.rows):
        some = slice(start, start + settings.rows)
        inside = (offset >= -before[some]) & (offset <= behind[some]) & near
        last = min(count, (start + settings.rows) * row) - 1
        yield WordRows(around[some], inside, drawn[some], int(places[last]) + 1)
