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
    The numbers are sorted as [document | random | column], so that neither ties nor an argsort arise and documents stay
    in place. `flip` makes the column no preference where the random parts agree.
    """

    def __init__(self, *, vocab: Vocab, budget: Budget, choose_specials: bool) -> None:
        barred = np.arange(vocab.size) == vocab.pad if choose_specials else vocab.special
        self.barred = np.where(barred, ~np.uint32(0), np.uint32(0))  # [V], or-ed into the random numbers
        self.budget = budget

    def __call__(self, rows: Rows, draws: Draws) -> Spans:
        seq = rows.seqs[rows.input]
        width, document = seq.ids.shape[1], seq.tracks.get("document")
        bits = (width - 1).bit_length()
        narrow = document is not None and 2 * bits <= 22  # document, column and at least ten random bits fit into 32
        spare = np.uint32(bits if narrow else 0)
        low, largest = np.uint32((1 << bits) - 1), ~np.uint32(0) >> spare
        flip = draws.bits(rows.key, "flip", 1) & low  # [n, 1]
        order, barred = draws.bits(rows.key, "order", width), self.barred.take(seq.ids)
        if narrow:
            order >>= spare
            barred >>= spare
        order &= ~low
        order |= np.arange(width, dtype=np.uint32) ^ flip
        order |= barred
        if document is not None:
            kind, by = (np.uint32, 32 - bits) if narrow else (np.uint64, 32)
            order = order | document.astype(kind) << kind(by)
        order.sort(axis=1)
        slot = runs(*self.budget.of_documents(rows, draws))
        chosen = order.ravel()[slot].astype(np.uint32) & largest
        allowed = chosen != largest  # else the document has fewer ordinary tokens than its budget
        row = slot[allowed] // width
        column = (chosen[allowed] & low ^ flip[row, 0]).astype(np.int64)
        return Spans(row, column, np.ones_like(row))

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
