"""The offsets of sentences and documents in the token shards, and documents as one stream of
tokens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from plmctl.core.fields import Field, Fields
from plmctl.noise.masking import expand_runs

if TYPE_CHECKING:
    from plmctl.data.shards import Shards


def sentence_edges(shards: Shards) -> np.ndarray:
    """[S + 1] token offsets of the sentences, without empty ones."""
    return _rising(np.asarray(shards.sentences))


def document_edges(shards: Shards) -> np.ndarray:
    """[D + 1] token offsets of the documents, without empty ones."""
    return _rising(np.asarray(shards.sentences)[np.asarray(shards.documents)])


def _rising(offsets: np.ndarray) -> np.ndarray:
    keep = np.ones(len(offsets), bool)
    np.not_equal(offsets[1:], offsets[:-1], out=keep[1:])
    return offsets[keep]


CONTINUES: Fields = {
    "values.continues": Field(
        "[n]", "bool", "the row continues the same row of the batch before it (state is kept)"
    )
}


class Stretches(NamedTuple):
    """Pieces of the token shards that form some intervals of a stream; the pieces of an interval
    are consecutive.
    """

    pieces: np.ndarray  # [intervals] number of pieces of each
    start: np.ndarray  # [m] first token of a piece
    size: np.ndarray  # [m] its tokens, without the closing one
    closing: np.ndarray  # [m] bool: the closing token of its document follows


class Stream(NamedTuple):
    """All documents one after the other, each followed by `closing` (0 or 1) tokens of its own."""

    edges: np.ndarray  # [D + 1] offsets in the stream
    origin: np.ndarray  # [D] first token of each document in the shards
    closing: int

    @classmethod
    def of(cls, edges: np.ndarray, closing: int, order: np.ndarray | None = None) -> Stream:
        """The stream of the documents between the token offsets `edges`, in their own or another
        order.
        """
        length, origin = np.diff(edges) + closing, edges[:-1]
        if order is not None:
            length, origin = length[order], origin[order]
        return cls(np.concatenate([[0], np.cumsum(length)]), origin, closing)

    def cut(self, low: np.ndarray, high: np.ndarray) -> Stretches:
        """The intervals `low[i] .. high[i]` of the stream, cut where documents end."""
        first = np.searchsorted(self.edges, low, side="right") - 1
        count = np.maximum(np.searchsorted(self.edges, high) - first, 0) * (high > low)
        document = expand_runs(first, count)
        begin = np.maximum(np.repeat(low, count), self.edges[document])
        end = np.minimum(np.repeat(high, count), self.edges[document + 1])
        closing = (end == self.edges[document + 1]) & (self.closing > 0)
        return Stretches(
            count,
            self.origin[document] + begin - self.edges[document],
            end - begin - closing,
            closing,
        )
