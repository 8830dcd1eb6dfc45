"""What goes along with tokens into a row: the tracks of the shards, the numbers of sentences,
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


def is_wanted(field: str, wanted: frozenset[str] | None) -> bool:
    return wanted is None or field in wanted


def word_starts(
    shards: Shards, vocab: Vocab, ids: np.ndarray, place: np.ndarray, added: list[np.ndarray]
) -> np.ndarray:
    """From the shards' track (Chinese words are not seen in the pieces) or else from the
    vocabulary's table.
    """
    if "word_start" not in shards.tracks:
        return vocab.word_start.take(ids)
    starts = np.asarray(shards.tracks["word_start"]).take(place, mode="clip").astype(bool)
    for places in added:
        starts[places] = vocab.word_start[ids[places]]
    return starts


def track(values: np.ndarray, place: np.ndarray, added: list[np.ndarray]) -> np.ndarray:
    """A track of the shards at the tokens `place`; 0 at the places of padding and special
    tokens.
    """
    found = np.asarray(values).take(place, mode="clip")
    for places in added:
        found[places] = 0
    return found


def sentence_numbers(
    shards: Shards,
    begin: np.ndarray,
    before: np.ndarray,
    start: np.ndarray,
    size: np.ndarray,
    shape: tuple[int, int],
) -> np.ndarray:
    """[n, T] the number of the sentence inside its row: pieces with `size` tokens from `start`
    begin at `begin`.

    Special tokens count with the sentence next to them in their piece; padding is the caller's to
    mark.
    """
    sentences = np.asarray(shards.sentences)
    first = np.searchsorted(sentences, start, side="right")
    count = np.maximum(np.searchsorted(sentences, start + size) - first, 0)
    opens = np.zeros(shape[0] * shape[1], np.int32)
    opens[np.repeat(begin + before - start, count) + sentences[expand_runs(first, count)]] = 1
    opens[begin] = 1
    number = np.cumsum(opens, dtype=np.int32).reshape(shape)
    return number - number[:, :1]


def spans(
    marked: SpanTrack,
    begin: np.ndarray,
    before: np.ndarray,
    start: np.ndarray,
    size: np.ndarray,
    width: int,
) -> np.ndarray:
    """int64 [m, 4] = row, start, length, id of the spans that lie whole in a piece; those that
    it cuts are dropped.
    """
    first, count = _inside(marked, start, size)
    which, piece = expand_runs(first, count), np.repeat(np.arange(len(start)), count)
    row, column = np.divmod(
        begin[piece] + before[piece] - start[piece] + np.asarray(marked.start)[which], width
    )
    length, name = (np.asarray(x)[which].astype(np.int64) for x in (marked.length, marked.id))
    return np.stack([row, column, length, name], 1)


def lost_spans(
    tracks: Mapping[str, SpanTrack], start: np.ndarray, size: np.ndarray
) -> dict[str, int]:
    """{"entity spans lost": how many spans of the track lie whole in none of the pieces},
    without zeros.
    """
    found = {}
    for name, marked in tracks.items():
        first, count = _inside(marked, start, size)
        covers = np.zeros(len(marked.start) + 1, np.int64)
        np.add.at(covers, first, 1)
        np.add.at(covers, first + count, -1)
        found[f"{name}_spans_lost"] = int((np.cumsum(covers[:-1]) == 0).sum())
    return {name: lost for name, lost in found.items() if lost}


def _inside(
    marked: SpanTrack, start: np.ndarray, size: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(first, count) of the spans that lie whole in each piece; spans do not overlap, so only
    the last can stick out.
    """
    places, length = np.asarray(marked.start), np.asarray(marked.length)
    first, stop = np.searchsorted(places, start), np.searchsorted(places, start + size)
    last = np.maximum(stop - 1, 0)
    if len(places):
        stop = stop - ((stop > first) & (places[last] + length[last] > start + size))
    return first, stop - first
