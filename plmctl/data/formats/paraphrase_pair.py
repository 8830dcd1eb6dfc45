"""A sentence with its translation, or with another sentence (Huang et al., 2019: Unicoder)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from plmctl.core.batch import Rows
from plmctl.core.parts import part_of
from plmctl.data.formats.base import Plan
from plmctl.data.formats.carried import Wanted
from plmctl.data.formats.pairs import (
    PAIR,
    SegmentPairs,
    check_rate,
    find_anchors,
    plan_pairs,
    read_parallel,
)
from plmctl.data.formats.text_pair import TextPair
from plmctl.text.vocab import Vocab

if TYPE_CHECKING:
    from plmctl.data.shards import Shards


@part_of("format")
class ParaphrasePair(TextPair):
    """`TextPair`, in which a share `wrong_rate` of the sentences have exchanged their translations:
    `labels.pair` 0 = a translation, 1 = another sentence (Huang et al., 2019, arXiv:1909.00964,
    sec. 3.3: cross-lingual paraphrase classification, with as many of each).

    They are exchanged between sentences of nearly equal length: every sentence is in one pair, and
    no length reveals whether it is right. Drawn anew in every epoch. Differs: published wrong ones
    are chosen by a light model that was trained on random ones.
    """

    copies = None
    fields = PAIR
    meanings: Mapping[str, Sequence[str]] = {
        "pair": ("B is the translation of A", "B is that of another sentence")
    }

    def __init__(
        self, *, vocab: Vocab, max_length: int, packed: bool, wrong_rate: float = 0.5
    ) -> None:
        check_rate("wrong_rate", wrong_rate)
        super().__init__(vocab=vocab, max_length=max_length, packed=packed)
        self.wrong_rate = wrong_rate
        self.provides = self.provides | {"labels.pair", "anchors"}

    def plan(self, shards: Shards, *, seed: int, epoch: int, input_length: int) -> Plan:
        rng = np.random.default_rng((seed, epoch))
        pairs = read_parallel(shards, "format=paraphrase_pair")
        right, tokens = self.select(pairs, input_length), pairs.tokens
        wrong = rng.random(len(right.a_start)) < self.wrong_rate
        mixed = exchange(right, np.flatnonzero(wrong), rng)
        wrong = mixed.b_start != right.b_start  # a single one has nobody to exchange with
        fits = mixed.b_end - mixed.b_start + mixed.a_end - mixed.a_start
        kept = np.flatnonzero(fits + 2 * self.kinds[0].size <= input_length)
        mixed = mixed.select(kept)
        plan, order = plan_pairs(shards, mixed, self.kinds, input_length, packed=self.packed)
        plan.arrays["pair"] = wrong[kept][order].astype(np.int8)
        plan.report.update(dropped=tokens - mixed.tokens, wrong_pairs=int(wrong[kept].sum()))
        return plan

    def rows(self, shards: Shards, plan: Plan, index: np.ndarray, wanted: Wanted = None) -> Rows:
        layout, seq = self.lay(shards, plan, index, wanted)
        anchors, number = find_anchors(layout, plan, index)
        labels = {"pair": plan.arrays["pair"][number].astype(np.int64)}
        return Rows(
            key=index, seqs={"text": seq}, spans=layout.spans, anchors=anchors, labels=labels
        )


def exchange(pairs: SegmentPairs, some: np.ndarray, rng: np.random.Generator) -> SegmentPairs:
    """The pairs, of which each of `some` has the B of the next longer of them, the last that of the
    first; equal lengths are in a random order.
    """
    length = (pairs.b_end - pairs.b_start)[some]
    order = some[np.lexsort((rng.random(len(some)), length))]
    b_start, b_end = pairs.b_start.copy(), pairs.b_end.copy()
    b_start[order], b_end[order] = (np.roll(b[order], -1) for b in (pairs.b_start, pairs.b_end))
    return SegmentPairs(pairs.a_start, pairs.a_end, b_start, b_end)
