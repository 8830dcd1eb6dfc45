"""The data that tokens bring along into a row: the tracks of the shards, the numbers of sentences,
and marked spans.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from plmctl.noise.masking import expand_runs
from plmctl.text.vocab import Vocab

if TYPE_CHECKING:
    from plmctl.data.shards import Shards, SpanTrack


Wanted = frozenset[str] | None  # the fields to read; None: all


def is_wanted(field: str, wanted: Wanted) -> bool:
    """Whether a field is among the `wanted` ones (None: all are)."""
    return wanted is None or field in wanted


def gather_word_starts(
    shards: Shards, vocab: Vocab, ids: np.ndarray, source: np.ndarray, added: list[np.ndarray]
) -> np.ndarray:
    """Where words start: by the shards' track (pieces do not show Chinese words), or else by the
    vocabulary's table.

    Args:
        ids: [n*T] tokens of the rows.
        source: [n*T] offset of each token in the shards.
        added: positions of padding and special tokens, which the shards do not have.
    """
    if "word_start" not in shards.tracks:
        return vocab.word_start.take(ids)
    starts = np.asarray(shards.tracks["word_start"]).take(source, mode="clip").astype(bool)
    for positions in added:
        starts[positions] = vocab.word_start[ids[positions]]
    return starts


def gather_track(values: np.ndarray, source: np.ndarray, added: list[np.ndarray]) -> np.ndarray:
    """A track of the shards at the offsets `source`; 0 at the positions of padding and special
    tokens.
    """
    track = np.asarray(values).take(source, mode="clip")
    for positions in added:
        track[positions] = 0
    return track


def number_sentences(
    shards: Shards,
    begin: np.ndarray,
    before: np.ndarray,
    start: np.ndarray,
    size: np.ndarray,
    shape: tuple[int, int],
) -> np.ndarray:
    """[n, T]: the number of the sentence inside its row.

    Pieces with `size` tokens from `start` begin at `begin`. Special tokens count with the sentence
    next to them in their piece; the caller marks padding.
    """
    sentences = np.asarray(shards.sentences)
    first = np.searchsorted(sentences, start, side="right")
    count = np.maximum(np.searchsorted(sentences, start + size) - first, 0)
    opens = np.zeros(shape[0] * shape[1], np.int32)
    opens[np.repeat(begin + before - start, count) + sentences[expand_runs(first, count)]] = 1
    opens[begin] = 1
    number = np.cumsum(opens, dtype=np.int32).reshape(shape)
    return number - number[:, :1]


def gather_spans(
    marked: SpanTrack,
    begin: np.ndarray,
    before: np.ndarray,
    start: np.ndarray,
    size: np.ndarray,
    width: int,
) -> np.ndarray:
    """int64 [m, 4] = row, start, length, id of the spans that are completely inside a piece; spans
    that a piece cuts are dropped.
    """
    first, count = _inside(marked, start, size)
    which, piece = expand_runs(first, count), np.repeat(np.arange(len(start)), count)
    row, column = np.divmod(
        begin[piece] + before[piece] - start[piece] + np.asarray(marked.start)[which], width
    )
    length, name = (np.asarray(x)[which].astype(np.int64) for x in (marked.length, marked.id))
    return np.stack([row, column, length, name], 1)


def count_lost_spans(
    tracks: Mapping[str, SpanTrack], start: np.ndarray, size: np.ndarray
) -> dict[str, int]:
    """{"entity_spans_lost": how many spans of the track are completely inside no piece}, without
    zeros.
    """
    counts = {}
    for name, marked in tracks.items():
        first, count = _inside(marked, start, size)
        covers = np.zeros(len(marked.start) + 1, np.int64)
        np.add.at(covers, first, 1)
        np.add.at(covers, first + count, -1)
        counts[f"{name}_spans_lost"] = int((np.cumsum(covers[:-1]) == 0).sum())
    return {name: lost for name, lost in counts.items() if lost}


def _inside(
    marked: SpanTrack, start: np.ndarray, size: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(first, count) of the spans that are completely inside each piece; spans do not overlap, so
    only the last one can cross its end.
    """
    begins, length = np.asarray(marked.start), np.asarray(marked.length)
    first, stop = np.searchsorted(begins, start), np.searchsorted(begins, start + size)
    last = np.maximum(stop - 1, 0)
    if len(begins):
        stop = stop - ((stop > first) & (begins[last] + length[last] > start + size))
    return first, stop - first
