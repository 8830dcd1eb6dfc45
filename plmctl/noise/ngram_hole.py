"""One n-gram of each row is hidden (Kong et al., 2020, InfoWord): the rest and the n-gram are two
views of the row.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from plmctl.core.batch import IGNORE, Rows
from plmctl.core.draws import HALF, Draws, below
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.noise.base import Noise, find_mask
from plmctl.noise.groups import Lengths
from plmctl.noise.masking import MASKED, Spans
from plmctl.noise.moves import find_stretches
from plmctl.noise.units import find_units
from plmctl.text.vocab import Vocab


@part_of("noise")
class NgramHole(Noise):
    """The tokens `x_i .. x_j` of a row become the mask; j - i + 1 ~ N(mean, deviation^2), rounded,
    within 1 .. max_tokens; i uniform.

    Writes spans.chosen `[m, 3]` = row, start, length, and the tokens as targets. Tokens that an
    earlier noise hid stay hidden and predicted, and the n-gram is one of the original text:
    `noise=[token_mask,ngram_hole]`. (Kong et al., 2020, arXiv:1910.08350, sec. 4.2: mean 5,
    deviation 1, clipped to 1 .. 10.) Differs: lengths count tokens; an n-gram lies between special
    tokens, leaves at least one token of its row, and is shorter if there is no room; a row of one
    token has none.
    """

    fields = MASKED
    writes = frozenset({"targets.mlm", "spans.chosen"})

    def __init__(self, *, vocab: Vocab, mean: float, deviation: float, max_tokens: int) -> None:
        self.mask = find_mask(vocab, "ngram_hole")
        for name, value in (("deviation", deviation), ("max_tokens", max_tokens)):
            if value <= 0:
                raise ConfigError(f"noise.{name}", value, "above 0")
        self.vocab, self.lengths = vocab, Lengths(gaussian_shares(mean, deviation, max_tokens))

    def __call__(self, rows: Rows, draws: Draws) -> Rows:
        seq = rows.seqs[rows.input]
        labels = rows.targets.get("mlm", np.full(seq.ids.shape, IGNORE, np.int32))
        clean = np.where(labels == IGNORE, seq.ids, labels)
        spans = self._spans(rows.with_seq(rows.input, replace(seq, ids=clean)), draws)
        ids, labels, index = seq.ids.copy(), labels.copy(), spans.tokens()
        labels[index], ids[index] = clean[index], self.mask
        noised = rows.with_seq(rows.input, replace(seq, ids=ids)).with_targets(mlm=labels)
        return replace(noised, spans={**noised.spans, "chosen": np.stack(spans, 1)})

    def capacity(self, length: int) -> dict[str, int]:
        return {"mlm": min(length, self.lengths.most)}

    def _spans(self, rows: Rows, draws: Draws) -> Spans:
        """One span of each row with two or more ordinary tokens, uniform over its positions."""
        n, width = rows.seqs[rows.input].ids.shape
        begin, size = find_stretches(find_units(rows, self.vocab, words=False))
        row = begin // width
        longest = np.zeros(n, np.int64)
        tokens = np.bincount(row, weights=size, minlength=n).astype(np.int64)
        np.maximum.at(longest, row, size)
        word = draws.words(rows.key, "ngram", 1)[:, 0]
        length = np.minimum(self.lengths(word >> HALF), np.minimum(longest, tokens - 1))
        room = np.maximum(size - length[row] + 1, 0) * (length[row] > 0)
        total = np.bincount(row, weights=room, minlength=n).astype(np.int64)
        some = np.flatnonzero(total)
        position = (
            np.cumsum(total)[some] - total[some] + below(word[some].astype(np.uint32), total[some])
        )
        stretch = np.searchsorted(np.cumsum(room), position, side="right")
        start = begin[stretch] % width + position - (np.cumsum(room) - room)[stretch]
        return Spans(some, start, length[some])


def gaussian_shares(mean: float, deviation: float, most: int) -> np.ndarray:
    """[most] probabilities of 1 .. most for a normal number that is rounded and then clipped to
    them.
    """
    edges = (np.arange(1, most) + 0.5 - mean) / (deviation * math.sqrt(2))
    below_edge = [0.0, *(0.5 * (1 + math.erf(edge)) for edge in edges), 1.0]
    return np.diff(below_edge)
