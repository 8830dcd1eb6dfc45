"""Shuffled trigrams (Wang et al., 2020, StructBERT): a few runs of three tokens are out of order,
and the model predicts their order.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import permutations

import numpy as np

from plmctl.core.batch import IGNORE, Rows
from plmctl.core.draws import HALF, Draws, below
from plmctl.core.errors import ConfigError
from plmctl.core.fields import Field
from plmctl.core.parts import part_of
from plmctl.noise.base import Noise
from plmctl.noise.groups import take_first_come
from plmctl.noise.masking import NoiseBudget, Shuffled, exclude, expand_runs, sum_before
from plmctl.noise.moves import permute
from plmctl.text.vocab import Vocab

COUNTS = ("trigrams", "tokens")


@part_of("noise")
class TokenShuffle(Noise):
    """Shuffles `rate` of the trigrams without a masked token; `targets.shuffle` are their original
    tokens.

    (Wang et al., 2020, arXiv:1908.04577, sec. 2.2: 5%, after masking:
    noise=[token_mask,token_shuffle].) `size`: tokens of a run, K in the paper. The paper leaves
    some choices open. Here the share is of all runs that could be taken, each counted by its first
    token, or with `count="tokens"` of the ordinary tokens. Runs are drawn one after the other and
    never overlap, and none touches a special token. A run whose tokens are all equal is not drawn,
    and all orders that change a run are equally likely.
    """

    writes = frozenset({"targets.shuffle"})
    fields: Mapping[str, Field] = {
        "targets.shuffle": Field(
            "[n, T]",
            "int",
            "id of the token that stood here before tokens were shuffled, IGNORE elsewhere",
            tokens=True,
        )
    }

    def __init__(
        self, *, vocab: Vocab, rate: float, size: int = 3, count: str = "trigrams"
    ) -> None:
        if not 2 <= size <= 5:
            raise ConfigError("noise.size", size, "2 to 5 tokens")
        if count not in COUNTS:
            raise ConfigError(
                "noise.count", count, f"one of {', '.join(COUNTS)}: what rate is a share of"
            )
        if not 0 < rate < 1:
            raise ConfigError("noise.rate", rate, "0 < rate < 1")
        self.vocab, self.size, self.by_tokens = vocab, size, count == "tokens"
        share = rate / size if self.by_tokens else rate
        self.budget = NoiseBudget(
            rate=share, max_predictions=None, selection="exact", count_specials=False
        )
        self.orders = np.array(list(permutations(range(size)))[1:])  # [K! - 1, K]

    def __call__(self, rows: Rows, draws: Draws) -> Rows:
        seq = rows.seqs[rows.input]
        ordinary = ~self.vocab.special.take(seq.ids)
        heads = self._heads(rows, ordinary)
        first, budget = self.budget.of_documents(rows, draws, ordinary if self.by_tokens else heads)
        start = self._choose(rows, draws, heads, first, budget)
        slots = start[:, None] + np.arange(self.size)  # [m, K]
        tokens = seq.ids.ravel()[slots]
        labels = np.full(seq.ids.shape, IGNORE, np.int32)
        labels.ravel()[slots] = tokens
        word = draws.words_at(rows.key, "order", *np.divmod(start, seq.ids.shape[1]))
        changes = (tokens[:, self.orders] != tokens[:, None]).any(2)  # [m, K! - 1]
        lot = below((word >> HALF).astype(np.uint32), np.count_nonzero(changes, axis=1))
        order = self.orders[(np.cumsum(changes, axis=1) > lot[:, None]).argmax(1)]
        take = np.arange(seq.ids.size)
        take[slots] = start[:, None] + order
        return permute(rows, take).with_targets(shuffle=labels)

    def _heads(self, rows: Rows, ordinary: np.ndarray) -> np.ndarray:
        """[n, T] bool: tokens that a run may begin with."""
        seq = rows.seqs[rows.input]
        free = ordinary & (rows.targets["mlm"] == IGNORE) if "mlm" in rows.targets else ordinary
        last = self.size - 1
        heads = np.zeros(free.shape, bool)
        unlike = np.zeros((len(free), max(0, free.shape[1] - last)), bool)
        inside = free[:, : unlike.shape[1]].copy()
        for step in range(1, self.size):
            inside &= free[:, step : step + unlike.shape[1]]
            unlike |= seq.ids[:, : unlike.shape[1]] != seq.ids[:, step : step + unlike.shape[1]]
        if "document" in seq.tracks:
            document = seq.tracks["document"]
            inside &= document[:, : unlike.shape[1]] == document[:, last : last + unlike.shape[1]]
        heads[:, : unlike.shape[1]] = inside & unlike
        return heads

    def _choose(
        self, rows: Rows, draws: Draws, heads: np.ndarray, first: np.ndarray, budget: np.ndarray
    ) -> np.ndarray:
        """[m] first slots of the runs: the shuffled heads one after the other, without runs that
        overlap an earlier one.
        """
        order = Shuffled(rows, draws, exclude(~heads))
        room = np.diff(first, append=heads.size)
        visits = np.minimum(room, budget + (budget >> 1) + 4)
        open_, chosen = np.flatnonzero(budget > 0), []
        while len(open_):
            slot, allowed = order.gather(expand_runs(first[open_], visits[open_]))
            good = take_first_come(
                slot, np.where(allowed, slot + self.size, slot), heads.size + self.size
            )
            document = np.repeat(np.arange(len(open_)), visits[open_])
            now = good & (
                sum_before(good.astype(np.int64), visits[open_]) < budget[open_][document]
            )
            enough = np.bincount(document, weights=now, minlength=len(open_)) == budget[open_]
            enough |= visits[open_] == room[open_]
            chosen.append(slot[now & enough[document]])
            open_ = open_[~enough]
            # the same visits again, and as many more
            visits[open_] = np.minimum(room[open_], 2 * visits[open_])
        return np.concatenate(chosen).astype(np.int64) if chosen else np.zeros(0, np.int64)

    def capacity(self, length: int) -> dict[str, int]:
        return {
            "shuffle": (
                self.size
                * self.budget.capacity(length if self.by_tokens else max(1, length - self.size + 1))
            )
        }
