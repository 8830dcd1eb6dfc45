"""A text in pieces for an update each: rows of words that share negatives, and their windows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from plmctl.vectors.bands import Bands
from plmctl.vectors.corpus import WordCorpus
from plmctl.vectors.noise_words import NoiseWords

BLOCK = 1 << 18  # words that are prepared at the same time


@dataclass(frozen=True)
class WindowSettings:
    """How a text is cut.

    Args:
        reach: words on each side of a window at most.
        sample: t of `share_kept`; 0: all words stay.
        row: words of a row, R.
        rows: The rows of an update, M.
        shared: negatives that the words of a row share, N.
        negatives: k, how many of them count for a prediction.
        single: a word is predicted once, from its window, and not once for each word near it.
    """

    reach: int
    sample: float
    row: int
    rows: int
    shared: int
    negatives: int
    single: bool


@dataclass(frozen=True, eq=False)
class WordRows:
    """The L = M R words of an update, as rows that share negatives, and the window of each.

    Args:
        asked: int64 [C T + M N] the words, with those around them, and then the negatives of all
            rows.
        left: int64 [L] for `Bands.find_inside`.
        right: the same.
        near: float [L] how many words are in the window of each.
        made: float [L] predictions of a word.
        share: float [L] how much each negative of its row counts for a word.
        of_inputs: float [L], of single predictions [C T]; how much the steps of a word count,
            for `StepBound`.
        of_outputs: float [C T + M N] the same.
        bands: cuts the words.
        done: words of the text that have been read so far.
    """

    asked: Tensor
    left: Tensor
    right: Tensor
    near: Tensor
    made: Tensor
    share: Tensor
    of_inputs: Tensor
    of_outputs: Tensor
    bands: Bands
    done: int

    @property
    def around(self) -> Tensor:
        """int64 [C T] the words, with those around them."""
        return self.asked[: self.bands.around]

    @property
    def words(self) -> Tensor:
        """int64 [L] the words themselves."""
        return self.asked[self.bands.reach : self.bands.reach + self.bands.length]

    @property
    def drawn(self) -> Tensor:
        """int64 [M N] the negatives."""
        return self.asked[self.bands.around :]

    @property
    def inside(self) -> Tensor:
        """float [B, T, T + 2 W] of `Bands.find_inside`."""
        return self.bands.find_inside(self.left, self.right)


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
    """Rows of one pass over the text. Frequent words are left out by chance, then each word draws
    the reach of its window from 1 .. ~W. W.
    """
    kept, done = share_kept(corpus.counts, settings.sample).astype(np.float32), 0
    bands = Bands(settings.reach, settings.row * settings.rows)
    for words, sentences in corpus.read_blocks(BLOCK):
        stay = np.flatnonzero(generator.random(len(words), np.float32) < kept[words])
        if len(stay):
            left, right = draw_reaches(sentences[stay], settings.reach, generator)
            updates = -(-len(stay) // (settings.row * settings.rows))
            drawn = noise.draw(generator, (updates, settings.rows, settings.shared))
            yield from cut_rows(words[stay], left, right, drawn, bands, settings, done + stay)
        done += len(words)


def draw_reaches(
    sentences: np.ndarray, reach: int, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """How many words on its left and right are in the window of each word, int64 [n] both: a reach
    drawn from 1 .. W, which ends where the sentence ends.
    """
    drawn, count = generator.integers(1, reach + 1, len(sentences)), len(sentences)
    borders = np.flatnonzero(sentences[1:] != sentences[:-1]) + 1
    starts, ends = np.append(0, borders), np.append(borders, count)
    lengths = ends - starts
    places = np.arange(count)
    before = places - np.repeat(starts, lengths)
    behind = np.repeat(ends - 1, lengths) - places
    return np.minimum(drawn, before), np.minimum(drawn, behind)


def cut_rows(
    words: np.ndarray,
    left: np.ndarray,
    right: np.ndarray,
    drawn: np.ndarray,
    bands: Bands,
    settings: WindowSettings,
    places: np.ndarray,
) -> Iterator[WordRows]:
    """The updates of a block of words, of which the last is filled with words without a window.

    Args:
        words: [n].
        left: int64 [n] words on its left that are in the window of each.
        right: the same for its right.
        drawn: int64 [updates, M, N].
        bands: The bands of L words.
        places: [n] of the words in the text.
    """
    updates, reach, length, count = len(drawn), bands.reach, bands.length, len(words)
    padded = np.zeros((updates - 1) * length + bands.around, np.int64)
    padded[reach : reach + count] = words
    around = np.lib.stride_tricks.sliding_window_view(padded, bands.around)[::length]
    asked = np.concatenate([around, drawn.reshape(updates, -1)], 1)
    sides = np.zeros((2, updates, length), np.int64)
    sides.reshape(2, -1)[:, :count] = left, right
    near = sides.sum(0).astype(np.float32)
    weights = _weigh(near, _count_windows(sides[0], sides[1], bands), settings)
    sides += np.tile(np.arange(bands.band) * (reach + 1), length // bands.band)
    names = ("asked", "left", "right", "near", "made", "share", "of_inputs", "of_outputs")
    arrays = zip(names, (asked, *sides, near, *weights), strict=True)
    tensors = {name: torch.from_numpy(each) for name, each in arrays}
    for n in range(updates):
        read = int(places[min(count, (n + 1) * length) - 1]) + 1
        some = {name: each[n] for name, each in tensors.items()}
        yield WordRows(**some, bands=bands, done=read)


def _weigh(near: np.ndarray, met: np.ndarray, settings: WindowSettings) -> tuple[np.ndarray, ...]:
    """`WordRows.made`, `share`, `of_inputs` and `of_outputs` of updates, [updates, ...]."""
    made, positive = near, met
    if settings.single:
        made = np.minimum(near, 1)
        positive = np.zeros_like(met)
        positive[:, settings.reach : settings.reach + made.shape[1]] = made
    share = made * np.float32(settings.negatives / settings.shared)
    rows = share.reshape(len(near), settings.rows, -1).sum(2)
    negative = np.repeat(rows, settings.shared, 1)
    of_inputs = (met if settings.single else near) * np.float32(1 + settings.negatives)
    return made, share, of_inputs, np.concatenate([positive, negative], 1)


def _count_windows(left: np.ndarray, right: np.ndarray, bands: Bands) -> np.ndarray:
    """float32 [updates, C T] in how many windows of its update each word around it is, for windows
    int64 [updates, L].
    """
    first, size = np.arange(len(left))[:, None] * bands.around, len(left) * bands.around
    places = first + np.arange(bands.reach, bands.reach + bands.length)
    met = np.bincount((places - left).ravel(), minlength=size)
    met -= np.bincount((places + right + 1).ravel(), minlength=size + 1)[:size]
    np.cumsum(met, out=met)
    met[places] -= 1  # itself
    return met.astype(np.float32).reshape(-1, bands.around)
