"""Two segments in one row, the second written with the first in view (Dong et al., 2019: UniLM)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from plmctl.core.batch import Rows
from plmctl.core.errors import ConfigError
from plmctl.core.fields import Field
from plmctl.core.parts import part_of
from plmctl.data.formats.base import Format, Plan
from plmctl.data.formats.carried import Wanted
from plmctl.data.formats.pairs import SegmentPairs, plan_pairs, read_parallel
from plmctl.data.formats.pieces import lay_rows, piece_lengths
from plmctl.data.formats.sentence_pair import SentencePair
from plmctl.text.vocab import Vocab

if TYPE_CHECKING:
    from plmctl.data.shards import Shards


@part_of("format")
class Prefix(Format):
    """`cls A sep B sep` with `values.prefix`, the tokens of `cls A sep`: they see each other, B
    sees them and what is before.

    Plain text: B follows A, cut as BERT's pairs (`short_rate`, `copies` as there); a chunk of one
    sentence is dropped.
    Parallel text: A is the source, B the target; B is cut to `target_length` tokens, then A to what
    is left, both at the end. (arXiv:1905.03197, sec. 2.1 and 2.4; the lengths as in its code for
    fine-tuning, e.g. 568 + 200 of 768.)
    """

    fields: Mapping[str, Field] = {
        "values.prefix": Field(
            "[n]",
            "int",
            "tokens at the row's start that see each other, whatever the pattern says of the rest",
        )
    }

    def __init__(
        self,
        *,
        vocab: Vocab,
        max_length: int,
        short_rate: float,
        target_length: int,
        copies: int | None = None,
    ) -> None:
        self.text = SentencePair(
            vocab=vocab,
            max_length=max_length,
            short_rate=short_rate,
            random_rate=0.0,
            lone_rate=0.0,
            copies=copies,
        )
        self.vocab, self.max_length, self.copies = vocab, max_length, copies
        self.short_rate, self.target_length = short_rate, target_length
        self.kinds, self.specials = self.text.kinds, self.text.specials
        if not 1 <= target_length < max_length - self.specials:
            allowed = (
                f"1 up to {max_length - self.specials - 1}, which leaves a token of"
                " format.max_length to the source"
            )
            raise ConfigError("format.target_length", target_length, allowed)
        self.provides = frozenset({"text", "tracks.segment", "values.prefix", *self.carried})

    def plan(self, shards: Shards, *, seed: int, epoch: int, input_length: int) -> Plan:
        """Plain text is cut again in every epoch; parallel text has always the same pairs, one a
        row.
        """
        if not shards.pairs:
            return self.text.plan(shards, seed=seed, epoch=epoch, input_length=input_length)
        parallel = read_parallel(shards, "format=prefix")
        complete = parallel.select(
            np.flatnonzero(
                (parallel.a_end > parallel.a_start) & (parallel.b_end > parallel.b_start)
            )
        )
        b_end = np.minimum(complete.b_end, complete.b_start + self.target_length)
        a_end = np.minimum(
            complete.a_end,
            complete.a_start + input_length - self.specials - (b_end - complete.b_start),
        )
        kept = SegmentPairs(complete.a_start, a_end, complete.b_start, b_end)
        plan, _ = plan_pairs(shards, kept, self.kinds, input_length, packed=False)
        plan.report.update(
            cut=complete.tokens - kept.tokens, dropped=parallel.tokens - complete.tokens
        )
        return plan

    def sequence_lengths(self, plan: Plan) -> np.ndarray:
        first = plan.arrays["row_start"][:-1]
        return np.add.reduceat(piece_lengths(plan, self.kinds), first)

    def rows(self, shards: Shards, plan: Plan, index: np.ndarray, wanted: Wanted = None) -> Rows:
        layout = lay_rows(shards, plan, index, self.kinds, self.vocab, wanted)
        seq = layout.seq.with_tracks(segment=layout.fill(layout.piece == 1).astype(np.int8))
        prefix = layout.slots[layout.piece == 0].astype(np.int64)
        return Rows(key=index, seqs={"text": seq}, spans=layout.spans, values={"prefix": prefix})
