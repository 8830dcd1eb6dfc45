"""Masking that favours words of one sense (Levine et al., 2020, SenseBERT): their meaning is
sure.
"""

from __future__ import annotations

from functools import cached_property, partial
from typing import Unpack

import numpy as np

from plmctl.core.batch import Rows
from plmctl.core.draws import Draws
from plmctl.core.parts import part_of
from plmctl.core.values import Rate
from plmctl.knowledge.known import TextSample
from plmctl.knowledge.senses import Senses
from plmctl.noise.groups import Lengths, Walk
from plmctl.noise.mask_tokens import MaskSettings, MaskTokens
from plmctl.noise.masking import NoiseBudget, Select, Spans
from plmctl.noise.units import find_counted, find_units
from plmctl.text.vocab import Vocab


class FavouredWords(Select):
    """First words of one sense, `min(share of them, most of the budget)`; then any others in random
    order, up to the budget.
    """

    reads = frozenset({"input", "tracks.word_start"})

    def __init__(
        self,
        *,
        vocab: Vocab,
        senses: Senses,
        budget: NoiseBudget,
        share: float,
        most: float,
        words: bool,
    ) -> None:
        self.vocab, self.senses, self.budget = vocab, senses, budget
        self.share, self.most, self.words = share, most, words

    @cached_property
    def clear(self) -> np.ndarray:
        """[V] bool: tokens that are words of one sense."""
        bits = self.senses.of_vocab(self.vocab)
        alone: np.ndarray = (bits != 0) & (bits & (bits - 1) == 0)
        return alone

    def __call__(self, rows: Rows, draws: Draws) -> Spans:
        units = find_units(rows, self.vocab, words=self.words)
        words = units if self.words else find_units(rows, self.vocab, words=True)
        walk = Walk(rows, units, Lengths(np.ones(1)), draws)
        whole = np.zeros(len(walk.heads), bool)  # words of one token
        whole[words.start[:-1]] = np.diff(words.start) == 1
        clear = walk.heads & whole & self.clear[rows.seqs[rows.input].ids].ravel()
        counted = find_counted(rows, units, self.budget)
        first, budget = self.budget.of_documents(rows, draws, counted)
        count = np.add.reduceat(clear, first, dtype=np.int64)
        favoured = np.rint(np.minimum(self.share * count, self.most * budget)).astype(np.int64)
        left = walk.take(draws.child("clear"), clear, first, favoured)
        others = walk.heads & ~walk.taken[units.of_slot]
        walk.take(draws, others, first, budget - favoured + left)
        return walk.spans()


@part_of("noise")
class SenseMask(MaskTokens):
    """BERT's masking, with 40% of the budget for words of one sense.

    Half of these words of a row are chosen, at random, or as many as make 40% of the budget; the
    other predicted tokens are drawn from all that are left (Levine et al., 2020,
    arXiv:1908.05646, sec. 3.5: 50%, 40%). With `words`, whole words are chosen, for the average of
    their tokens (sec. 3.4).
    Differs: the paper does not say whether words of one sense may be drawn a second time; here
    they may.
    """

    def __init__(
        self,
        *,
        vocab: Vocab,
        senses: Senses,
        clear_share: Rate = 0.5,
        budget_share: Rate = 0.4,
        words: bool = False,
        **masking: Unpack[MaskSettings],
    ) -> None:
        self.senses = senses
        super().__init__(
            select=partial(
                FavouredWords,
                vocab=vocab,
                senses=senses,
                share=clear_share,
                most=budget_share,
                words=words,
            ),
            vocab=vocab,
            **masking,
        )

    def describe_known(self, text: TextSample) -> str:
        """How many words of a text have senses."""
        return self.senses.describe_known(text)
