"""Complete sentences in a row up to its length (Liu et al., 2019, arXiv:1907.11692, sec. 4.2:
FULL-SENTENCES, DOC-SENTENCES).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from plmctl.core.batch import Rows
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.data.formats.base import Format, Plan
from plmctl.data.formats.carried import Wanted
from plmctl.data.formats.edges import document_edges, sentence_edges
from plmctl.data.formats.packing import best_fit_decreasing, cut_chunks, follow_links
from plmctl.data.formats.pieces import lay_rows, plan_pieces
from plmctl.text.template import Wrap, find_special, find_wraps
from plmctl.text.vocab import Vocab

if TYPE_CHECKING:
    from plmctl.data.shards import Shards


@part_of("format")
class FullSentences(Format):
    """`cls` sentences `sep`: as many complete consecutive sentences as fit.

    `crossing=True` (FULL-SENTENCES): a row goes on into the next document after one more `sep`;
    rows do not hide documents from each other, as published. False (DOC-SENTENCES): what is filled
    ends with its document. RoBERTa then enlarged the batch to keep its tokens; `packed=True` does
    that with rows: several of them best-fit in one, and none sees another. Differs: a sentence
    longer than a row is cut into several rows, so no token is lost. The public code lays one
    over-long row and truncates it.
    """

    copies = 1

    def __init__(
        self, *, vocab: Vocab, max_length: int, crossing: bool, packed: bool = False
    ) -> None:
        if crossing and packed:
            allowed = "false with format.crossing=true (its rows are full as they are)"
            raise ConfigError("format.packed", True, allowed)
        self.vocab = vocab
        self.max_length = max_length
        self.crossing = crossing
        self.packed = packed
        isolated = {"tracks.document", "tracks.position"} if packed else set()
        self.provides = frozenset({"text", *self.carried, *isolated})
        both, sep = find_wraps(vocab, vocab.single)[0], (find_special(vocab, "sep"),)
        # by first in its row + 2 * last in its row
        self.kinds = [Wrap((), sep), Wrap(both.before, sep), Wrap((), both.after), both]
        if max_length <= both.size:
            allowed = f"more than the {both.size} special tokens of a row"
            raise ConfigError("format.max_length", max_length, allowed)

    def plan(self, shards: Shards, *, seed: int, epoch: int, input_length: int) -> Plan:
        """The same rows in every epoch; only their order changes."""
        room = input_length - self.kinds[3].size
        sentences, edges = sentence_edges(shards), document_edges(shards)
        start, size = cut_chunks(sentences, room)
        document = np.searchsorted(edges, start, side="right") - 1
        end = start + size + document  # one position for the separator after each earlier document
        following = np.searchsorted(end, start + document + room, side="right")
        if not self.crossing:
            following = np.minimum(following, np.searchsorted(start, edges)[document + 1])
        first = follow_links(following)
        cut = np.zeros(len(start) + 1, bool)
        cut[first] = True
        cut[:-1] |= np.diff(document, prepend=-1) > 0
        piece = np.flatnonzero(cut)  # a piece: the sentences of one document in one row
        row_start = np.searchsorted(piece, first)
        kind = np.zeros(len(piece) - 1, np.int8)
        kind[row_start[:-1]] += 1
        kind[row_start[1:] - 1] += 2
        bounds = np.append(start, len(shards.ids))[piece]
        begin, size = bounds[:-1], np.diff(bounds)
        if self.packed:
            order, row_start = best_fit_decreasing(size + self.kinds[3].size, input_length)
            begin, size = begin[order], size[order]
        return plan_pieces(
            shards=shards,
            width=input_length,
            row_start=row_start,
            start=begin,
            size=size,
            kind=kind,
            kinds=self.kinds,
        )

    def rows(self, shards: Shards, plan: Plan, index: np.ndarray, wanted: Wanted = None) -> Rows:
        layout = lay_rows(shards, plan, index, self.kinds, self.vocab, wanted)
        seq = layout.isolate(layout.piece, layout.begin) if self.packed else layout.seq
        return Rows(key=index, seqs={"text": seq}, spans=layout.spans)
