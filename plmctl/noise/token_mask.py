"""Masked tokens (Devlin et al., 2019): hide single tokens chosen at random, ask for the
originals.
"""

from __future__ import annotations

import numpy as np

from plmctl.core.batch import Rows
from plmctl.core.draws import Draws
from plmctl.core.parts import part_of
from plmctl.noise.masking import (
    Masking,
    MaskOrReplace,
    NoiseBudget,
    Select,
    Shuffled,
    Spans,
    expand_runs,
)
from plmctl.text.vocab import Vocab


class RandomTokens(Select):
    """Exactly the budget of each document, uniformly without replacement from its ordinary
    tokens.
    """

    def __init__(self, *, vocab: Vocab, budget: NoiseBudget, choose_specials: bool) -> None:
        excluded = np.arange(vocab.size) == vocab.pad if choose_specials else vocab.special
        self.excluded = np.where(excluded, ~np.uint32(0), np.uint32(0))  # [V]
        self.budget = budget

    def __call__(self, rows: Rows, draws: Draws) -> Spans:
        order = Shuffled(rows, draws, self.excluded.take(rows.seqs[rows.input].ids))
        return first_tokens(order, *self.budget.of_documents(rows, draws))

    def capacity(self, length: int) -> int:
        return self.budget.capacity(length)


def first_tokens(order: Shuffled, first: np.ndarray, budget: np.ndarray) -> Spans:
    """The `budget` tokens that stand first in each document, fewer where it has fewer that may
    be chosen.
    """
    place, allowed = order.at(expand_runs(first, budget))
    row, column = np.divmod(place[allowed].astype(np.int64), order.width)
    return Spans(row, column, np.ones_like(row))


@part_of("noise")
class TokenMask(Masking):
    """BERT's masking: `rate` of the tokens are asked; of these 80% show the mask, 10% a random
    token, 10% themselves.

    Defaults are BERT's (Devlin et al., 2019, arXiv:1810.04805, sec. 3.1 and its code): an exact
    budget, never a special token, random ids from the whole vocabulary, `max_predictions` null or
    e.g. 20 at 128 tokens. RoBERTa (Liu et al., 2019, arXiv:1907.11692, its code): `selection:
    probabilistic, random_specials: false`, and `choose_specials: true` to the letter.
    Differs: BERT and RoBERTa know one document a row; a packed row shares its budget among its
    documents by length.
    """

    def __init__(
        self,
        *,
        vocab: Vocab,
        rate: float,
        mask_share: float = 0.8,
        random_share: float = 0.1,
        max_predictions: int | None = None,
        selection: str = "exact",
        random_specials: bool = True,
        choose_specials: bool = False,
        static: int | None = None,
    ) -> None:
        budget = NoiseBudget(rate=rate, max_predictions=max_predictions, selection=selection)
        super().__init__(
            select=RandomTokens(vocab=vocab, budget=budget, choose_specials=choose_specials),
            corrupt=MaskOrReplace(
                vocab=vocab,
                mask_share=mask_share,
                random_share=random_share,
                random_specials=random_specials,
            ),
            static=static,
        )
