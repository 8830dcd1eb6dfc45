"""Pairs of related words in addition to the rows of text, for lexical relation classification
(Lauscher et al., 2020, LIBERT).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property

import numpy as np

from plmctl.core.batch import Rows
from plmctl.core.draws import Draws
from plmctl.core.errors import DataError
from plmctl.core.fields import Field
from plmctl.core.parts import part_of
from plmctl.core.values import Rate
from plmctl.knowledge.word_pairs import WordPairs
from plmctl.noise.base import Noise
from plmctl.text.vocab import Vocab


@part_of("noise")
class LexicalPairs(Noise):
    """Writes `spans.lexical`: a random pair of words for a `share` of the rows; changes nothing.

    (Lauscher et al., 2020, sec. 3.2: batches of pairs take turns with those of text.)
    Differs: pairs come with the rows of every batch, not in batches of their own.

    Args:
        pairs: the lexicon; the objective needs the same.
        share: The share of pairs in the rows; 0.25 of 64 rows are the paper's 16 pairs.
        held_out: pairs with a word that training never sees, for validation.
    """

    reads = frozenset({"input"})
    writes = frozenset({"spans.lexical"})
    changes = False
    fields: Mapping[str, Field] = {
        "spans.lexical": Field(
            "[m, 4]", "int", "row, 0, 1, number of a pair of related words in the lexicon"
        )
    }

    def __init__(
        self, *, vocab: Vocab, pairs: WordPairs, share: Rate = 0.25, held_out: bool = False
    ) -> None:
        self.vocab, self.pairs, self.share, self.held_out = vocab, pairs, share, held_out

    @cached_property
    def choices(self) -> np.ndarray:
        """The numbers of the pairs that may be drawn."""
        table = self.pairs.of_vocab(self.vocab)
        found = np.flatnonzero(table.held == self.held_out)
        if not len(found):
            which = "with" if self.held_out else "without"
            fix = "a share of held-out words between: pairs.held_out=0.05"
            raise DataError(f"there is no pair {which} a held-out word", fix=fix)
        return found

    def __call__(self, rows: Rows, draws: Draws) -> Rows:
        drawn = draws.uniform(rows.key, "whether") < self.share
        row = np.flatnonzero(drawn & (rows.seqs[rows.input].length > 0))
        place = draws.integers(rows.key, "which", len(self.choices))
        pair = self.choices[place[row]]
        spans = np.stack([row, np.zeros_like(row), np.ones_like(row), pair], 1)
        return replace(rows, spans={**rows.spans, "lexical": spans.astype(np.int64)})
