"""Single tokens behind sentinels (Raffel et al., 2020, T5): any tokens are taken out, not spans;
neighbours share a sentinel.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from plmctl.core.batch import Rows
from plmctl.core.draws import Draws
from plmctl.core.parts import part_of
from plmctl.noise.masking import NoiseBudget, Shuffled, exclude
from plmctl.noise.moves import find_stretches, gather, keep_tokens
from plmctl.noise.span_sentinel import SpanSentinel
from plmctl.noise.token_mask import take_first
from plmctl.noise.units import Units
from plmctl.text.vocab import Vocab


@part_of("noise")
class TokenSentinel(SpanSentinel):
    """`max(1, round(rate * n))` of n tokens, drawn without replacement; source and target as of
    span_sentinel, or with `sentinels=False` both without sentinels:

        x1 x2 x4 x6 eos            x3 x5 eos

    (Raffel et al., 2020, arXiv:1910.10683, sec. 3.3.2, table 5: "replace corrupted spans", the
    baseline, and "drop corrupted tokens".) Differs: the number is fixed, where each token was drawn
    by itself; the first token of a text stays.
    """

    def __init__(self, *, vocab: Vocab, rate: float, sentinels: bool) -> None:
        super().__init__(vocab=vocab, rate=rate, mean_length=1.0)
        self.budget = NoiseBudget(rate=rate, max_predictions=None, selection="exact")
        self.marked = sentinels

    def input_length(self, length: int) -> int:
        """One less: as many sentinels as tokens, and the end."""
        return max(1, length - 1)

    def _widths(self, length: int) -> tuple[int, int, int]:
        noise = max(1, round(self.rate * length))
        return length + 1, noise, noise

    def __call__(self, rows: Rows, draws: Draws) -> Rows:
        rows = super().__call__(rows, draws)
        return rows if self.marked else drop_sentinels(rows, self.vocab)

    def _spans(self, rows: Rows, draws: Draws, units: Units) -> tuple[np.ndarray, np.ndarray]:
        seq = rows.seqs["text"]
        stays = self.vocab.special.take(seq.ids) | ~seq.real
        stays.ravel()[find_stretches(units)[0]] = True
        order = Shuffled(rows, draws, exclude(stays))
        taken = take_first(order, *self.budget.of_documents(rows, draws))
        slot = np.sort(taken.row * seq.ids.shape[1] + taken.start)
        begins = np.flatnonzero(np.diff(slot, prepend=-2) != 1)  # first tokens stay between rows
        return slot[begins], np.diff(begins, append=len(slot))


def drop_sentinels(rows: Rows, vocab: Vocab) -> Rows:
    """Source and target without their sentinels."""
    known = np.zeros(vocab.size, bool)
    known[list(vocab.sentinels)] = True
    target = rows.seqs["target"]
    keep = target.real & ~known[target.ids]
    shown, _ = gather(target, np.flatnonzero(keep), keep.sum(1), pad=vocab.pad)
    rows = keep_tokens(rows, ~known[rows.seqs["source"].ids], pad=vocab.pad)
    return replace(rows, seqs={**rows.seqs, "target": shown})
