"""One sentence a row, for the training of sentence embeddings (Gao et al., 2021; Kong et al.,
2020).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from plmctl.core.batch import Rows
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.data.formats.base import Format, Plan
from plmctl.data.formats.carried import Wanted
from plmctl.data.formats.edges import sentence_edges
from plmctl.data.formats.pieces import lay_rows, plan_pieces
from plmctl.text.template import find_wraps
from plmctl.text.vocab import Vocab

if TYPE_CHECKING:
    from plmctl.data.shards import Shards


@part_of("format")
class Sentences(Format):
    """`cls` sentence `sep`, padded to `max_length`; the anchor of a row is its first token.

    A longer sentence is cut at its end, one of fewer than `min_tokens` tokens (special ones not
    counted) is dropped; the plan reports how many tokens that takes. (arXiv:2104.08821, released
    code: a sentence a line, cut to 32 tokens, none dropped.)
    """

    copies = 1

    def __init__(self, *, vocab: Vocab, max_length: int, min_tokens: int) -> None:
        self.vocab, self.max_length, self.min_tokens = vocab, max_length, min_tokens
        self.kinds = find_wraps(vocab, vocab.single)
        self.provides = frozenset({"text", "anchors", *self.carried})
        if min_tokens < 1:
            raise ConfigError("format.min_tokens", min_tokens, "at least 1")
        if max_length < min_tokens + self.kinds[0].size:
            allowed = (
                f"at least {min_tokens + self.kinds[0].size}: the special tokens and"
                f" min_tokens={min_tokens}"
            )
            raise ConfigError("format.max_length", max_length, allowed)

    def plan(self, shards: Shards, *, seed: int, epoch: int, input_length: int) -> Plan:
        """The same rows in every epoch; only their order changes."""
        edges = sentence_edges(shards)
        start, length = edges[:-1], np.diff(edges)
        kept = length >= self.min_tokens
        size = np.minimum(length[kept], input_length - self.kinds[0].size)
        plan = plan_pieces(
            shards=shards,
            width=input_length,
            row_start=np.arange(len(size) + 1),
            start=start[kept],
            size=size,
            kind=np.zeros(len(size)),
            kinds=self.kinds,
        )
        plan.report.update(
            dropped=int(length[~kept].sum()), cut=int(length[kept].sum() - size.sum())
        )
        return plan

    def rows(self, shards: Shards, plan: Plan, index: np.ndarray, wanted: Wanted = None) -> Rows:
        layout = lay_rows(shards, plan, index, self.kinds, self.vocab, wanted)
        anchors = np.stack([np.arange(len(index)), np.zeros(len(index), np.int64)], 1)
        return Rows(key=index, seqs={"text": layout.seq}, anchors=anchors, spans=layout.spans)
