"""Masking that favours rare tokens (Conneau and Lample, 2019, XLM): stop words and punctuation are
predicted less often.
"""

from __future__ import annotations

from functools import partial
from typing import Unpack

import numpy as np

from plmctl.core.batch import Rows
from plmctl.core.draws import Draws
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.noise.mask_tokens import MaskSettings, MaskTokens
from plmctl.noise.masking import NoiseBudget, Select, Spans, expand_runs, find_document_begins
from plmctl.text.frequencies import count_tokens
from plmctl.text.vocab import Vocab


class TokensByWeight(Select):
    """Exactly the budget of each document, one token after the other without replacement. The
    chance of each is its share in the weights of the remaining tokens.

    Tokens are taken by the least `-log(u) / weight`, u ~ U(0, 1), which has this distribution
    (Efraimidis and Spirakis, 2006). `weights` [V]; tokens of weight 0 are never chosen.
    """

    def __init__(self, *, weights: np.ndarray, budget: NoiseBudget) -> None:
        self.weights, self.budget = weights, budget

    def __call__(self, rows: Rows, draws: Draws) -> Spans:
        seq = rows.seqs[rows.input]
        width = seq.ids.shape[1]
        weight = np.where(seq.real, self.weights[seq.ids], 0.0)
        # the middle of each of the 2^32 steps, so that no logarithm is infinite
        drawn = (draws.bits(rows.key, "select", width) + 0.5) * 2.0**-32
        wait = np.full(weight.shape, np.inf)
        np.divide(-np.log(drawn), weight, out=wait, where=weight > 0)
        first, budget = self.budget.of_documents(
            rows, draws, None if self.budget.count_specials else weight > 0
        )
        begins = np.zeros(weight.shape, bool)
        begins[:, 0] = True
        if "document" in seq.tracks:
            begins = find_document_begins(seq.tracks["document"])
        order = np.lexsort((wait.ravel(), np.cumsum(begins.ravel())))
        slot = order[expand_runs(first, budget)]
        row, column = np.divmod(slot[np.isfinite(wait.ravel()[slot])], width)
        return Spans(row, column, np.ones_like(row))


@part_of("noise")
class FrequencyMask(MaskTokens):
    """BERT's masking with the same number of tokens, drawn with weights `frequency^-power`.

    0.5: the square root of the inverse frequency (Conneau and Lample, 2019, arXiv:1901.07291, sec.
    3.3); 0 is BERT's masking. The frequency of a token is its number in a sample of the corpus; a
    token without any counts as if it had one.
    Differs: XLM's code draws the tokens of a whole batch together, here each document has a budget
    of its own.
    """

    def __init__(
        self,
        *,
        vocab: Vocab,
        power: float = 0.5,
        corpus_sample: np.ndarray | None = None,
        **masking: Unpack[MaskSettings],
    ) -> None:
        if not 0 <= power <= 1:
            allowed = "0 (all tokens alike) to 1 (as rare as they are)"
            raise ConfigError("noise.power", power, allowed, fix="noise.frequency_mask.power=0.5")
        sample = np.zeros(0, np.int64) if corpus_sample is None else corpus_sample
        counts = np.maximum(1, count_tokens(sample, vocab.size))
        weights = np.where(vocab.special, 0.0, counts.astype(np.float64) ** -power)
        super().__init__(select=partial(TokensByWeight, weights=weights), vocab=vocab, **masking)
