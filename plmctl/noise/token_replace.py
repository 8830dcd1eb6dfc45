"""Replaced tokens without a generator: random tokens replace some tokens, and the model finds
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from plmctl.core.batch import IGNORE, Rows
from plmctl.core.draws import HALF, Draws, below
from plmctl.core.errors import ConfigError
from plmctl.core.fields import Field
from plmctl.core.parts import part_of
from plmctl.noise.masking import Corrupt, Masking, Select, Spans, list_ordinary
from plmctl.text.vocab import Vocab

TABLE = 1 << 20  # entries of a table that one draw picks a token from


class EachToken(Select):
    """Each ordinary token independently with probability `rate`."""

    def __init__(self, *, vocab: Vocab, rate: float) -> None:
        if not 0 < rate < 1:
            raise ConfigError("noise.rate", rate, "0 < rate < 1")
        self.special, self.below = vocab.special, np.uint32(rate * 2**32)

    def __call__(self, rows: Rows, draws: Draws) -> Spans:
        ids = rows.seqs[rows.input].ids
        slot = np.flatnonzero(draws.bits(rows.key, "chosen", ids.shape[1]) < self.below)
        row, column = np.divmod(slot[~self.special[ids.ravel()[slot]]], ids.shape[1])
        return Spans(row, column, np.ones_like(row))

    def capacity(self, length: int) -> int:
        return length


class Replace(Corrupt):
    """Each chosen token becomes one of `choices`; every token has a label: 1 if it now differs, 0
    if not.
    """

    def __init__(self, *, vocab: Vocab, choices: np.ndarray, ask_originals: bool) -> None:
        self.labels = np.where(vocab.special, IGNORE, 0).astype(np.int32)  # [V]
        self.choices, self.ask_originals = choices, ask_originals
        self.writes = frozenset(
            {"targets.replaced"} | ({"targets.mlm"} if ask_originals else set())
        )

    def __call__(self, rows: Rows, spans: Spans, draws: Draws) -> Rows:
        seq = rows.seqs[rows.input]
        row, column = spans.tokens()
        flat = row * seq.ids.shape[1] + column
        word = draws.words_at(rows.key, "token", row, column)
        new = self.choices[below((word >> HALF).astype(np.uint32), len(self.choices))]
        old = seq.ids.ravel()[flat]
        ids, targets = seq.ids.copy(), {"replaced": self.labels.take(seq.ids)}
        ids.ravel()[flat] = new
        targets["replaced"].ravel()[flat] = new != old
        if self.ask_originals:
            targets["mlm"] = np.full(seq.ids.shape, IGNORE, np.int32)
            targets["mlm"].ravel()[flat] = old
        return rows.with_seq(rows.input, replace(seq, ids=ids)).with_targets(**targets)


def flatten(sample: np.ndarray, power: float) -> np.ndarray:
    """The ids, each repeated in proportion to `(its count in sample) ** power`, to within one in a
    million.
    """
    ids, counts = np.unique(sample, return_counts=True)
    weights = counts**power
    return np.repeat(
        ids, np.maximum(1, np.rint(weights * (TABLE / weights.sum()))).astype(np.int64)
    )


@part_of("noise")
class TokenReplace(Masking):
    """Replaces `rate` of the tokens, each independently, by random ordinary tokens;
    targets.replaced says where.

    The replaced-token detection of ELECTRA (Clark et al., 2020, arXiv:2003.10555, sec. 2) with a
    generator that knows only how frequent tokens are in the corpus (`unigram`), or not even that;
    P(token) ~ frequency^power, 0.75 as the negative samples of word2vec (Mikolov et al., 2013,
    arXiv:1310.4546, sec. 2.2). As in ELECTRA, a token that is replaced by itself counts as
    original. `ask_originals` also predicts the originals, as targets.mlm at every chosen token.
    Differs: ELECTRA's generator is a masked language model; that is an objective here, since noise
    never uses a network.
    """

    fields: Mapping[str, Field] = {
        "targets.replaced": Field(
            "[n, T]",
            "int",
            "1 where the noise put another token, 0 where it did not, IGNORE at special tokens and"
            " padding",
        )
    }

    def __init__(
        self,
        *,
        vocab: Vocab,
        rate: float,
        unigram: bool = True,
        power: float = 1.0,
        ask_originals: bool = False,
        static: int | None = None,
        corpus_sample: np.ndarray | None = None,
    ) -> None:
        if not 0 < power <= 1:
            allowed = "0 < power <= 1 (unigram=false draws all ordinary tokens equally)"
            raise ConfigError("noise.power", power, allowed)
        choices = list_ordinary(vocab, corpus_sample if unigram else None)
        if power < 1:
            choices = flatten(choices, power)
        super().__init__(
            select=EachToken(vocab=vocab, rate=rate),
            corrupt=Replace(vocab=vocab, choices=choices, ask_originals=ask_originals),
            static=static,
        )
