"""Shuffled tokens (Panda et al., 2021): some tokens of a row change positions with each other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from plmctl.core.batch import IGNORE, Rows
from plmctl.core.draws import Draws
from plmctl.core.errors import ConfigError
from plmctl.core.fields import Field
from plmctl.core.parts import part_of
from plmctl.noise.base import Noise
from plmctl.text.vocab import Vocab

MEANING = "1 if the token differs from the original, 0 if not, IGNORE at special tokens"
FIELDS = {"targets.shuffled": Field("[n, T]", "int", MEANING)}


@part_of("noise")
class TokenShuffling(Noise):
    """`rate` of the tokens of a row, special tokens excluded, are permuted among themselves.

    Args:
        vocab: says which tokens are special.
        rate: probability of each token to be chosen, 0 < rate <= 1.
    """

    writes = frozenset({"targets.shuffled"})
    fields = FIELDS

    def __init__(self, *, vocab: Vocab, rate: float) -> None:
        if not 0 < rate <= 1:
            raise ConfigError("noise.rate", rate, "0 < rate <= 1")
        self.special, self.rate = vocab.special, rate

    def __call__(self, rows: Rows, draws: Draws) -> Rows:
        text = rows.seqs[rows.input]
        ordinary = text.real & ~self.special[text.ids]  # [n, T]
        length = text.ids.shape[1]
        chosen = ordinary & (draws.uniform(rows.key, "chosen", length) < self.rate)
        order = draws.uniform(rows.key, "order", length)
        ids = text.ids.copy()
        for row in range(len(ids)):
            positions = np.flatnonzero(chosen[row])
            ids[row, positions] = ids[row, positions[np.argsort(order[row, positions])]]
        labels = np.where(ordinary, ids != text.ids, IGNORE).astype(np.int32)
        return rows.with_seq(rows.input, replace(text, ids=ids)).with_targets(shuffled=labels)

    def capacity(self, length: int) -> dict[str, int]:
        return {"shuffled": length}
