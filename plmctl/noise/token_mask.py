"""Masked tokens (Devlin et al., 2019): random single tokens are hidden, and the model predicts the
originals.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Unpack

import numpy as np

from plmctl.core.batch import Rows
from plmctl.core.draws import Draws
from plmctl.core.parts import part_of
from plmctl.noise.mask_tokens import MaskSettings, MaskTokens
from plmctl.noise.masking import NoiseBudget, Select, Shuffled, Spans, expand_runs
from plmctl.noise.units import find_spans
from plmctl.text.vocab import Vocab


class RandomTokens(Select):
    """Exactly the budget of each document, uniformly without replacement from its ordinary
    tokens.
    """

    def __init__(
        self,
        *,
        vocab: Vocab,
        budget: NoiseBudget,
        choose_specials: bool,
        outside: Sequence[str] = (),
    ) -> None:
        excluded = np.arange(vocab.size) == vocab.pad if choose_specials else vocab.special
        self.excluded = np.where(excluded, ~np.uint32(0), np.uint32(0))  # [V]
        self.budget, self.outside = budget, tuple(outside)
        self.reads = frozenset({"input", *(f"spans.{name}" for name in outside)})

    def __call__(self, rows: Rows, draws: Draws) -> Spans:
        seq = rows.seqs[rows.input]
        excluded = self.excluded.take(seq.ids)
        counted = None if self.budget.count_specials else (excluded == 0) & seq.real
        order = Shuffled(rows, draws, excluded)
        chosen = take_first(order, *self.budget.of_documents(rows, draws, counted))
        return self._drop_marked(rows, chosen) if self.outside else chosen

    def _drop_marked(self, rows: Rows, chosen: Spans) -> Spans:
        """Those of the chosen tokens that are in no span of `outside`."""
        width = rows.seqs[rows.input].ids.shape[1]
        marked = np.zeros(rows.seqs[rows.input].ids.size, bool)
        for name in self.outside:
            table = find_spans(rows, name)
            marked[expand_runs(table[:, 0] * width + table[:, 1], table[:, 2])] = True
        free = ~marked[chosen.row * width + chosen.start]
        return Spans(*(part[free] for part in chosen))


def take_first(order: Shuffled, first: np.ndarray, budget: np.ndarray) -> Spans:
    """The first `budget` tokens of each document in this order; fewer if fewer may be chosen."""
    slot, allowed = order.gather(expand_runs(first, budget))
    row, column = np.divmod(slot[allowed].astype(np.int64), order.width)
    return Spans(row, column, np.ones_like(row))


@part_of("noise")
class TokenMask(MaskTokens):
    """BERT's masking: `rate` of the tokens are predicted; of these 80% become the mask, 10% a
    random token, 10% stay.

    Defaults are BERT's (Devlin et al., 2019, arXiv:1810.04805, sec. 3.1 and its code): an exact
    budget, never a special token, random ids from the whole vocabulary, `max_predictions` null or
    e.g. 20 at 128 tokens. RoBERTa (Liu et al., 2019, arXiv:1907.11692, its code): `selection:
    probabilistic, random_specials: false`, and, exactly, `choose_specials: true`. WKLM (Xiong et
    al., 2020, arXiv:1912.09637, its code): `selection: ceiling, outside: [entity]`: tokens of the
    budget that are in such spans are left out, not drawn again.
    Differs: rows of BERT and RoBERTa are one document; documents of a packed row share its budget
    by length.
    """

    def __init__(
        self,
        *,
        vocab: Vocab,
        choose_specials: bool = False,
        outside: Sequence[str] = (),
        **masking: Unpack[MaskSettings],
    ) -> None:
        super().__init__(
            select=partial(
                RandomTokens, vocab=vocab, choose_specials=choose_specials, outside=outside
            ),
            vocab=vocab,
            **masking,
        )
