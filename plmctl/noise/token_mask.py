"""Masked tokens (Devlin et al., 2019): hide single tokens chosen at random, ask for the originals."""

from __future__ import annotations

import numpy as np

from plmctl.batch import Rows
from plmctl.noise.draws import Draws
from plmctl.noise.masking import Budget, Masking, MaskOrReplace, Select, Spans, runs
from plmctl.text.vocab import Vocab


class RandomTokens(Select):
    """Exactly the budget of each document, uniformly without replacement from its ordinary tokens.

    Every token gets a random number, those that may not be chosen the largest; the smallest `budget` of them are taken.
    """

    def __init__(self, *, vocab: Vocab, budget: Budget, choose_specials: bool) -> None:
        barred = np.arange(vocab.size) == vocab.pad if choose_specials else vocab.special
        self.barred = np.where(barred, ~np.uint32(0), np.uint32(0))  # [V], or-ed into the random numbers
        self.budget = budget

    def __call__(self, rows: Rows, draws: Draws) -> Spans:
        seq = rows.seqs["text"]
        width = seq.ids.shape[1]
        low = np.uint32((1 << (width - 1).bit_length()) - 1)  # the low bits hold the column: no ties, and no argsort
        order = draws.bits(rows.key, "order", width) & ~low
        order |= np.arange(width, dtype=np.uint32)
        order |= self.barred.take(seq.ids)
        if "document" in seq.tracks:  # documents come one after the other, so sorting by them first keeps their slots
            order = order | (seq.tracks["document"].astype(np.uint64) << np.uint64(32))
        order.sort(axis=1)
        slot = runs(*self.budget.of_documents(rows, draws))
        chosen = order.ravel()[slot].astype(np.uint32)
        allowed = chosen != ~np.uint32(0)  # fewer ordinary tokens than the budget
        row, start = slot[allowed] // width, (chosen[allowed] & low).astype(np.int64)
        return Spans(row, start, np.ones_like(row))

    def capacity(self, length: int) -> int:
        return self.budget.capacity(length)


class TokenMask(Masking):
    """BERT's masking: `rate` of the tokens are asked; of these 80% show the mask, 10% a random token, 10% themselves.

    Defaults are BERT's (Devlin et al., 2019, arXiv:1810.04805, sec. 3.1 and its code): an exact budget, never a special
    token, random ids from the whole vocabulary, `max_predictions` null or e.g. 20 at 128 tokens. RoBERTa (Liu et al., 2019,
    arXiv:1907.11692, its code): `selection: probabilistic, random_specials: false`, and `choose_specials: true` to the letter.
    Differs: BERT and RoBERTa know one document a row; a packed row shares its budget among its documents by length.
    """

    def __init__(
        self, *, vocab: Vocab, rate: float, mask_share: float = 0.8, random_share: float = 0.1,
        max_predictions: int | None = None, selection: str = "exact", random_specials: bool = True,
        choose_specials: bool = False, static: int | None = None,
    ) -> None:  # fmt: skip
        budget = Budget(rate=rate, max_predictions=max_predictions, selection=selection)
        super().__init__(
            select=RandomTokens(vocab=vocab, budget=budget, choose_specials=choose_specials),
            corrupt=MaskOrReplace(
                vocab=vocab, mask_share=mask_share, random_share=random_share, random_specials=random_specials
            ),
            static=static,
        )
