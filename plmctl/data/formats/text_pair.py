"""A sentence and its translation in one row (Conneau and Lample, 2019: translation language
modelling).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from plmctl.core.batch import Rows, Seq
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.data.formats.base import Format, Plan
from plmctl.data.formats.carried import Wanted
from plmctl.data.formats.pairs import SegmentPairs, number_languages, plan_pairs, read_parallel
from plmctl.data.formats.pieces import Layout, Pieces, lay_rows
from plmctl.text.template import find_wraps
from plmctl.text.vocab import Vocab

if TYPE_CHECKING:
    from plmctl.data.shards import Shards


@part_of("format")
class TextPair(Format):
    """`cls A sep cls B sep` (XLM: all four are `</s>`): positions restart at the translation,
    `tracks.language` changes there.

    The language of a side is the one of its tokens if the token directory has a track `language`.
    Otherwise it is 0 for the source and 1 for the target. Pairs that do not fit into a row are
    dropped. `packed=True`: several pairs a row, best fit, none sees another. (arXiv:1901.07291,
    sec. 3.4; facebookresearch/XLM: batches of single pairs of similar length.)
    """

    copies: int | None = 1

    parallel = True

    def __init__(self, *, vocab: Vocab, max_length: int, packed: bool) -> None:
        self.vocab, self.max_length, self.packed = vocab, max_length, packed
        self.kinds = find_wraps(vocab, vocab.single) * 2
        if max_length < 2 * self.kinds[0].size + 2:
            allowed = (
                f"at least {2 * self.kinds[0].size + 2}: the special tokens and one token a side"
            )
            raise ConfigError("format.max_length", max_length, allowed)
        isolated = {"tracks.document"} if packed else set()
        self.provides = frozenset(
            {"text", "tracks.position", "tracks.language", *self.carried, *isolated}
        )

    def languages(self, shards: Shards) -> int:
        return super().languages(shards) if "language" in shards.tracks else 2

    def plan(self, shards: Shards, *, seed: int, epoch: int, input_length: int) -> Plan:
        """The same rows in every epoch; only their order changes."""
        pairs = read_parallel(shards, "format=text_pair")
        fitting = self.select(pairs, input_length)
        plan, _ = plan_pairs(shards, fitting, self.kinds, input_length, packed=self.packed)
        plan.report["dropped"] = pairs.tokens - fitting.tokens
        return plan

    def select(self, pairs: SegmentPairs, width: int) -> SegmentPairs:
        """The pairs without an empty side that fit into a row of `width` tokens."""
        a, b = pairs.a_end - pairs.a_start, pairs.b_end - pairs.b_start
        fits = a + b + 2 * self.kinds[0].size <= width
        return pairs.select(np.flatnonzero((a > 0) & (b > 0) & fits))

    def rows(self, shards: Shards, plan: Plan, index: np.ndarray, wanted: Wanted = None) -> Rows:
        layout, seq = self.lay(shards, plan, index, wanted)
        return Rows(key=index, seqs={"text": seq}, spans=layout.spans)

    def lay(
        self, shards: Shards, plan: Plan, index: np.ndarray, wanted: Wanted
    ) -> tuple[Layout, Seq]:
        """The rows `index`, and their text with positions and languages."""
        layout = lay_rows(shards, plan, index, self.kinds, self.vocab, wanted)
        real = layout.piece >= 0
        language = np.zeros(len(real), np.int64)
        language[real] = number_languages(
            shards, Pieces.of(plan, index).start, layout.piece[real] % 2
        )
        alone = layout.isolate(layout.piece // 2, layout.begin)
        seq = alone if self.packed else layout.seq.with_tracks(position=alone.tracks["position"])
        return layout, seq.with_tracks(language=layout.fill(language).astype(np.int16))
