"""Parallel text for encoder-decoders: the source is read, the target is written (Sutskever et
al., 2014).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from plmctl.core.batch import Rows
from plmctl.core.errors import ConfigError, DataError
from plmctl.core.parts import part_of
from plmctl.data.formats.base import Format, Plan
from plmctl.data.formats.carried import Wanted
from plmctl.data.formats.pairs import plan_pairs, read_parallel
from plmctl.data.formats.pieces import Layout, Pieces, lay_pieces, piece_lengths
from plmctl.text.template import find_wraps
from plmctl.text.vocab import Vocab

if TYPE_CHECKING:
    from plmctl.data.shards import Shards


@part_of("format")
class Seq2Seq(Format):
    """A `source` and a `target` for each pair of parallel text, each with its own special tokens
    and length.

    `source_template`, `target_template`: roles around the text, called A, e.g. [A, eos]; null: the
    tokenizer's own for one segment. `truncated=True` cuts what is too long at its end, False drops
    the pair. Spans and tracks go with both; of the spans, rows name those of the source.
    (arXiv:1409.3215; lengths are limits of the data set: fairseq drops, its summarisation scripts
    cut.)
    """

    copies = 1

    parallel = True

    def __init__(
        self,
        *,
        vocab: Vocab,
        max_length: int,
        target_length: int,
        truncated: bool,
        source_template: Sequence[str] | None = None,
        target_template: Sequence[str] | None = None,
    ) -> None:
        self.vocab = vocab
        self.max_length = max_length
        self.target_length = target_length
        self.truncated = truncated
        self.kinds = []
        for name, template, usual, length in (
            ("source_template", source_template, vocab.single, max_length),
            ("target_template", target_template, vocab.around_target, target_length),
        ):
            roles = list(usual if template is None else template)
            if roles.count("A") != 1 or "B" in roles:
                allowed = "roles of special tokens around one A, e.g. [cls, A, sep]"
                raise ConfigError(f"format.{name}", roles, allowed)
            self.kinds += find_wraps(vocab, roles)
            if name == "target_template" and roles[-1] == "A":
                allowed = "roles whose last is a special token: it ends what is written"
                raise ConfigError(f"format.{name}", roles, allowed, fix=f"format.{name}=[A, eos]")
            if length <= self.kinds[-1].size:
                key = "max_length" if name == "source_template" else "target_length"
                allowed = f"more than the {self.kinds[-1].size} special tokens of a row"
                raise ConfigError(f"format.{key}", length, allowed)
        # belongs to the identity of the rows, as every plain attribute does
        self.templates = repr(self.kinds)
        self.provides = frozenset({"source", "target", *self.carried})

    def plan(self, shards: Shards, *, seed: int, epoch: int, input_length: int) -> Plan:
        """The same rows in every epoch; `input_length` is that of the source, which noise
        changes.
        """
        parallel = read_parallel(shards, "format=seq2seq")
        source_room, target_room = self._rooms(input_length)
        a, b = parallel.a_end - parallel.a_start, parallel.b_end - parallel.b_start
        good = (a > 0) & (b > 0) & (self.truncated | ((a <= source_room) & (b <= target_room)))
        complete = parallel.select(np.flatnonzero(good))
        a_end, b_end = complete.a_start + source_room, complete.b_start + target_room
        kept = complete._replace(
            a_end=np.minimum(complete.a_end, a_end), b_end=np.minimum(complete.b_end, b_end)
        )
        plan, _ = plan_pairs(
            shards, kept, self.kinds, input_length + self.target_length, packed=False
        )
        plan.report.update(
            cut=complete.tokens - kept.tokens, dropped=parallel.tokens - complete.tokens
        )
        return plan

    def sequence_lengths(self, plan: Plan) -> np.ndarray:
        first = plan.arrays["row_start"][:-1]
        return np.maximum.reduceat(piece_lengths(plan, self.kinds), first)

    def check(self, shards: Shards, plan: Plan) -> None:
        """DataError if every pair is too long; it names the length that all pairs need."""
        if not plan.rows and (message := self.describe_left_out(shards, plan)):
            pairs = read_parallel(shards, "format=seq2seq")
            lengths = ((pairs.a_end - pairs.a_start).max(), (pairs.b_end - pairs.b_start).max())
            limits = {"max_length": self.max_length, "target_length": self.target_length}
            needed = dict(
                zip(
                    limits,
                    (int(n) + kind.size for n, kind in zip(lengths, self.kinds, strict=True)),
                    strict=True,
                )
            )
            fix = " ".join(
                f"format.{key}={length}" for key, length in needed.items() if length > limits[key]
            )
            fix = f"{fix or 'less noise'}, or format.truncated=true"
            raise DataError(message, file=getattr(shards, "given", None), fix=fix)

    def describe_left_out(self, shards: Shards, plan: Plan) -> str:
        parallel = read_parallel(shards, "format=seq2seq")
        source_room, target_room = self._rooms(plan.width - self.target_length)
        sources = parallel.a_end - parallel.a_start > source_room
        targets = parallel.b_end - parallel.b_start > target_room
        count = 0 if self.truncated else int((sources | targets).sum())
        if not count:
            return ""
        sides = f"{int(sources.sum()):,} sources, {int(targets.sum()):,} targets"
        limits = f"format.max_length={self.max_length} / format.target_length={self.target_length}"
        return (
            f"{count:,} of {len(sources):,} pairs are longer than {limits} ({sides})"
            " and are left out"
        )

    def _rooms(self, input_length: int) -> tuple[int, int]:
        """The tokens of a source and of a target that fit between the special tokens."""
        return input_length - self.kinds[0].size, self.target_length - self.kinds[1].size

    def rows(self, shards: Shards, plan: Plan, index: np.ndarray, wanted: Wanted = None) -> Rows:
        source = self._side(shards, plan, index, 0, plan.width - self.target_length, wanted)
        target = self._side(shards, plan, index, 1, self.target_length, wanted)
        return Rows(
            key=index, seqs={"source": source.seq, "target": target.seq}, spans=source.spans
        )

    def _side(
        self, shards: Shards, plan: Plan, index: np.ndarray, side: int, width: int, wanted: Wanted
    ) -> Layout:
        """Lay out only the sources or only the targets of the rows."""
        where = plan.arrays["row_start"][index] + side
        one = np.ones(len(index), np.int64)
        pieces = Pieces(one, *(plan.arrays[name][where] for name in ("start", "size", "kind")))
        return lay_pieces(shards, pieces, self.kinds, self.vocab, width, wanted)
