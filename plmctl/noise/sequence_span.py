"""A hidden half (Song et al., 2019, MASS): one long span is masked in the source, and it alone is the target."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from plmctl.batch import Rows, Seq
from plmctl.errors import ConfigError
from plmctl.noise.base import Noise
from plmctl.noise.draws import HALF, Draws, below
from plmctl.noise.masking import MaskOrReplace, Spans, runs, shared
from plmctl.noise.moves import gathered, stretches
from plmctl.noise.units import units
from plmctl.text.vocab import Vocab


class SequenceSpan(Noise):
    """`x_u .. x_v` with `v - u + 1 = round(rate * m)`; 80% of its tokens show the mask, 10% a random token, 10% themselves.

    It lies at the beginning or the end with probability `edge_share` each, else anywhere. The target is `x_u .. x_v` with its
    places in `tracks.position`, so that the decoder knows where it is (Song et al., 2019, arXiv:1905.02450, sec. 3.2;
    microsoft/MASS, MASS-unsupNMT/src/trainer.py: rate 0.5, edge_share 0.2).
    Differs: m counts ordinary tokens, where the code counts the sentence's end, which the span may hold there. Documents of a
    packed row, and stretches between special tokens, have a span each and share the row's budget by length.
    """

    reads = frozenset({"text"})
    writes = frozenset({"source", "target"})
    removes = frozenset({"text"})

    def __init__(
        self, *, vocab: Vocab, rate: float, edge_share: float, mask_share: float = 0.8, random_share: float = 0.1,
        random_specials: bool = True,
    ) -> None:  # fmt: skip
        if not 0 < rate < 1:
            raise ConfigError("noise.rate", rate, "0 < rate < 1")
        if not 0 <= edge_share <= 0.5:
            raise ConfigError("noise.edge_share", edge_share, "0 to 0.5: probability of the beginning, and of the end")
        self.vocab, self.rate, self.edge = vocab, rate, edge_share
        self.corrupt = MaskOrReplace(
            vocab=vocab, mask_share=mask_share, random_share=random_share, random_specials=random_specials
        )

    def __call__(self, rows: Rows, draws: Draws) -> Rows:
        clean = rows.seqs["text"]
        spans = self._spans(rows, draws)
        masked = self.corrupt(rows, spans, draws.child("corrupt")).seqs["text"]
        width = clean.ids.shape[1]
        length = np.bincount(spans.row, weights=spans.length, minlength=len(rows.key)).astype(np.int64)
        take = runs(spans.row * width + spans.start, spans.length)
        target, _ = gathered(
            _placed(clean), take, length, pad=self.vocab.pad, width=max(1, round(self.rate * width)), restart=False
        )
        seqs = {name: seq for name, seq in rows.seqs.items() if name != "text"}
        return replace(rows, seqs={**seqs, "source": masked, "target": target})

    def _spans(self, rows: Rows, draws: Draws) -> Spans:
        width = rows.seqs["text"].ids.shape[1]
        start, length = stretches(units(rows, self.vocab, words=False))
        row, column = np.divmod(start, width)
        total = np.rint(self.rate * np.bincount(row, weights=length, minlength=len(rows.key)))
        size = shared(total, length, row, draws.uniform(rows.key, "share"))
        word = draws.words_at(rows.key, "place", row, column)
        lot = (word >> HALF).astype(np.float64) * 2.0**-32
        offset = below(word.astype(np.uint32), length - size + 1)
        offset = np.where(lot >= 1 - self.edge, 0, np.where(lot >= 1 - 2 * self.edge, length - size, offset))
        some = size > 0
        return Spans(row[some], (column + offset)[some], size[some])


def _placed(seq: Seq) -> Seq:
    """The sequence with its positions, which are 0 .. T-1 where it has no such track."""
    if "position" in seq.tracks:
        return seq
    return seq.with_tracks(position=np.tile(np.arange(seq.ids.shape[1]), (len(seq.ids), 1)))
