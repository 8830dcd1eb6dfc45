"""A hidden half (Song et al., 2019, MASS): one long span is masked in the source, and only this
span is the target.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from plmctl.core.batch import IGNORE, Rows, Seq
from plmctl.core.draws import HALF, Draws, below
from plmctl.core.errors import ConfigError
from plmctl.core.fields import Field
from plmctl.core.parts import part_of
from plmctl.noise.base import Noise
from plmctl.noise.masking import (
    MaskOrReplace,
    Shuffled,
    Spans,
    expand_runs,
    find_document_begins,
    share_out,
)
from plmctl.noise.moves import find_stretches, gather
from plmctl.noise.units import Units, find_units
from plmctl.text.vocab import Vocab


@part_of("noise")
class SequenceSpan(Noise):
    """`x_u .. x_v` with `v - u + 1 = round(rate * m)`; 80% of its tokens show the mask, 10% a
    random token, 10% themselves.

    It is at the beginning or the end with probability `edge_share` each, else anywhere. The target
    is `x_u .. x_v`: the decoder reads `x_{u-1} .. x_{v-1}` (`target.tracks.previous`) at the
    positions that these have in the text (`tracks.position`), and nothing else of it. `tokens`
    gives their number instead of `rate`: 1 is masked language modelling; rate 1 is a language
    model. (Song et al., 2019, arXiv:1905.02450, sec. 3.2; microsoft/MASS,
    MASS-unsupNMT/src/trainer.py: rate 0.5, edge_share 0.2.) The ablations of its table 7:
    `contiguous=False` ("Discrete") draws as many tokens anywhere; with `feed` the decoder reads all
    of the text and predicts only the span. Differs: m counts ordinary tokens, where the code counts
    the sentence's end, which the span may hold there. Documents of a packed row, and stretches
    between special tokens, have a span each and share the row's budget by length. Before a
    document's first token, where the text has none, the decoder reads the end-of-text token.
    """

    reads = frozenset({"text"})
    removes = frozenset({"text"})
    fields: Mapping[str, Field] = {
        "tracks.previous": Field(
            "[n, T]",
            "int",
            "the token that the decoder reads here, where it is not the token before",
            of="target",
            lines="none",
        )
    }

    def __init__(
        self,
        *,
        vocab: Vocab,
        rate: float,
        edge_share: float,
        mask_share: float = 0.8,
        random_share: float = 0.1,
        random_specials: bool = True,
        tokens: int | None = None,
        contiguous: bool = True,
        feed: bool = False,
    ) -> None:
        if not 0 < rate <= 1:
            raise ConfigError("noise.rate", rate, "0 < rate <= 1")
        if not 0 <= edge_share <= 0.5:
            allowed = "0 to 0.5: probability of the beginning, and of the end"
            raise ConfigError("noise.edge_share", edge_share, allowed)
        if tokens is not None and tokens < 1:
            raise ConfigError("noise.tokens", tokens, "at least 1, or null: as many as rate says")
        self.vocab, self.rate, self.edge = vocab, rate, edge_share
        self.tokens, self.contiguous, self.feed = tokens, contiguous, feed
        self.first = next(
            (token for token in (vocab.eos, vocab.sep, vocab.bos) if token is not None), vocab.pad
        )
        self.corrupt = MaskOrReplace(
            vocab=vocab,
            mask_share=mask_share,
            random_share=random_share,
            random_specials=random_specials,
        )
        labels = {"targets.seq2seq"} if feed else set()
        self.writes = frozenset({"source", "target", "tracks.previous", "tracks.position", *labels})

    def capacity(self, length: int) -> dict[str, int]:
        return {"seq2seq": self._most(length)}

    def columns(self, length: int) -> dict[str, int]:
        return {"source": length, "target": length if self.feed else self._most(length)}

    def _most(self, width: int) -> int:
        """The largest number of tokens in the spans of one row."""
        return max(1, round(self.rate * width)) if self.tokens is None else min(self.tokens, width)

    def __call__(self, rows: Rows, draws: Draws) -> Rows:
        clean = rows.seqs["text"]
        spans = self._spans(rows, draws)
        masked = self.corrupt(rows, spans, draws.child("corrupt")).seqs["text"]
        width = clean.ids.shape[1]
        slot = expand_runs(spans.row * clean.ids.shape[1] + spans.start, spans.length)
        seqs = {name: seq for name, seq in rows.seqs.items() if name != "text"} | {"source": masked}
        if self.feed:
            labels = np.full(clean.ids.shape, IGNORE, np.int64)
            labels.ravel()[slot] = clean.ids.ravel()[slot]
            return replace(rows, seqs=seqs | {"target": self._add_previous(clean)}).with_targets(
                seq2seq=labels
            )
        length = np.bincount(spans.row, weights=spans.length, minlength=len(rows.key)).astype(
            np.int64
        )
        target, _ = gather(
            self._add_previous(clean),
            slot,
            length,
            pad=self.vocab.pad,
            width=self._most(width),
            restart=False,
        )
        return replace(rows, seqs=seqs | {"target": target})

    def _add_previous(self, seq: Seq) -> Seq:
        """The text with the decoder's input at each token: the token before it, and that token's
        position.
        """
        position = seq.tracks.get(
            "position", np.tile(np.arange(seq.ids.shape[1]), (len(seq.ids), 1))
        )
        begins = (
            find_document_begins(seq.tracks["document"])
            if "document" in seq.tracks
            else position == 0
        )
        before = np.roll(seq.ids, 1, axis=1)
        previous = np.where(begins, np.asarray(self.first, seq.ids.dtype), before)
        return seq.with_tracks(previous=previous, position=np.maximum(position - 1, 0))

    def _spans(self, rows: Rows, draws: Draws) -> Spans:
        units = find_units(rows, self.vocab, words=False)
        start, length = find_stretches(units)
        row, column = np.divmod(start, rows.seqs["text"].ids.shape[1])
        row_size = np.bincount(row, weights=length, minlength=len(rows.key))
        total = (
            np.rint(self.rate * row_size)
            if self.tokens is None
            else np.minimum(self.tokens, row_size)
        )
        size = share_out(total, length, row, draws.uniform(rows.key, "share"))
        if not self.contiguous:
            return self._scatter(rows, draws, units, start, length, size)
        word = draws.words_at(rows.key, "place", row, column)
        lot = (word >> HALF).astype(np.float64) * 2.0**-32
        offset = below(word.astype(np.uint32), length - size + 1)
        offset = np.where(
            lot >= 1 - self.edge, 0, np.where(lot >= 1 - 2 * self.edge, length - size, offset)
        )
        some = size > 0
        return Spans(row[some], (column + offset)[some], size[some])

    @staticmethod
    def _scatter(
        rows: Rows,
        draws: Draws,
        units: Units,
        start: np.ndarray,
        length: np.ndarray,
        size: np.ndarray,
    ) -> Spans:
        """`size` tokens of each stretch, uniformly among all sets of that size."""
        shape = rows.seqs["text"].ids.shape
        group, excluded = np.zeros(shape, np.int32), np.full(shape, ~np.uint32(0))
        group.ravel()[start] = 1
        np.cumsum(group, axis=1, out=group)
        excluded.ravel()[expand_runs(start, length)] = 0
        # a stretch and the special tokens after it are one group; those are excluded and come last
        slot, _ = Shuffled(rows, draws, excluded, group).gather(expand_runs(start, size))
        row, column = np.divmod(np.sort(slot), shape[1])
        return Spans(row, column, np.ones_like(row))
