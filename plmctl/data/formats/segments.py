"""Streams that continue from batch to batch, for networks with memory (Dai et al., 2019; Peters et
al., 2018).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from plmctl.core.batch import IGNORE, Rows, Seq
from plmctl.core.errors import ConfigError
from plmctl.core.fields import Field
from plmctl.core.parts import part_of
from plmctl.data.formats.base import Format, Plan
from plmctl.data.formats.blocks import make_closing_wrap
from plmctl.data.formats.carried import Wanted, is_wanted
from plmctl.data.formats.edges import CONTINUES, Stream, document_edges
from plmctl.data.formats.pieces import lay_rows, plan_pieces
from plmctl.text.template import Wrap
from plmctl.text.vocab import Vocab

if TYPE_CHECKING:
    from plmctl.data.shards import Shards


@part_of("format")
class Segments(Format):
    """Reads the corpus in `streams` equal parts; row `t * streams + b` is part b's tokens `t * T ..
    (t + 1) * T`, T = max_length.

    So row b of a batch continues row b of the batch before (`values.continues`), from an epoch's
    first batch to its last. It stays on the same rank, however many ranks there are; `streams` is
    the number of rows of an update. All documents are one text, each closed by the end-of-text
    token. The tokens that remain, fewer than streams, are cut; the last batch is shorter.
    `targets.clm` of a row's last token is the first one of the next. `shuffled=True`: documents
    come in a new order in every epoch (LM1B), False: always as in the corpus (WikiText-103,
    enwik8). `both=True` adds `reverse`, for the backward half of a biLM. Row `t * streams + b` is
    part b's tokens from the `t`-th last `T` on, read from right to left. So it continues, too;
    `targets.backward` are the tokens that come next in it. (arXiv:1901.02860, sec. 3.2, and
    kimiyoung/transformer-xl data_utils.py; arXiv:1802.05365, its code unrolls 20 tokens.)
    """

    ordered = True
    streams: int

    fields: Mapping[str, Field] = {
        "reverse": Field(
            "",
            "Seq",
            "a stream of text from its end to its beginning, a second one (the backward half of a"
            " biLM)",
        ),
        **CONTINUES,
    }

    def __init__(
        self, *, vocab: Vocab, max_length: int, streams: int, shuffled: bool, both: bool = False
    ) -> None:
        if streams < 1:
            raise ConfigError(
                "format.streams", streams, "at least 1; train.batch_size, the rows of an update"
            )
        if max_length < 1:
            raise ConfigError("format.max_length", max_length, "at least 1")
        self.vocab = vocab
        self.max_length = max_length
        self.streams = streams
        self.shuffled = shuffled
        self.both = both
        self.copies = None if shuffled else 1
        self.kinds = [Wrap(), make_closing_wrap(vocab)]
        backward = {"reverse", "targets.backward"} if both else set()
        self.provides = frozenset(
            {"text", "targets.clm", "values.continues", *backward, *self.carried}
        )

    def plan(self, shards: Shards, *, seed: int, epoch: int, input_length: int) -> Plan:
        edges = document_edges(shards)
        order = (
            np.random.default_rng((seed, epoch)).permutation(len(edges) - 1)
            if self.shuffled
            else None
        )
        stream = Stream.of(edges, 1, order)
        length = int(stream.edges[-1]) // self.streams
        steps = -(-length // input_length)
        step, number = np.divmod(np.arange(steps * self.streams), self.streams)
        low, end = number * length + step * input_length, (number + 1) * length
        count, start, size, closing = stream.cut(low, np.minimum(low + input_length, end))
        plan = plan_pieces(
            shards=shards,
            width=input_length,
            row_start=np.concatenate([[0], np.cumsum(count)]),
            start=start,
            size=size,
            kind=closing,
            kinds=self.kinds,
        )
        plan.report["cut"] = len(shards.ids) - plan.report["laid_out"]
        return plan

    def rows(self, shards: Shards, plan: Plan, index: np.ndarray, wanted: Wanted = None) -> Rows:
        layout = lay_rows(shards, plan, index, self.kinds, self.vocab, wanted)
        targets = (
            {"clm": self._following(shards, plan, index, layout.seq)}
            if is_wanted("targets.clm", wanted)
            else {}
        )
        rows = Rows(
            key=index,
            seqs={"text": layout.seq},
            targets=targets,
            spans=layout.spans,
            values={"continues": index >= self.streams},
        )
        return self._add_reverse(rows, shards, plan) if self.both else rows

    def _add_reverse(self, rows: Rows, shards: Shards, plan: Plan) -> Rows:
        """The stream's rows in the other order, each from right to left, and what comes next in
        that direction.
        """
        step, number = np.divmod(rows.key, self.streams)
        index = (plan.rows // self.streams - 1 - step) * self.streams + number
        seq = lay_rows(shards, plan, index, self.kinds, self.vocab, frozenset()).seq
        position = np.arange(seq.ids.shape[1])
        last = np.where(
            position < seq.length[:, None], seq.length[:, None] - 1 - position, position
        )
        seq = replace(seq, ids=np.take_along_axis(seq.ids, last, 1), view=True)
        labels = np.full(seq.ids.shape, IGNORE, np.int32)
        labels[:, :-1] = np.where(seq.real[:, 1:], seq.ids[:, 1:], IGNORE)
        more = np.flatnonzero(index >= self.streams)
        # the last token of the row before this one
        piece = plan.arrays["row_start"][index[more] - self.streams + 1] - 1
        end = plan.arrays["start"][piece] + plan.arrays["size"][piece] - 1
        token = np.asarray(shards.ids).take(end, mode="clip")
        labels[more, seq.length[more] - 1] = np.where(
            plan.arrays["kind"][piece] == 1, self.kinds[1].after[0], token
        )
        return replace(
            rows, seqs={**rows.seqs, "reverse": seq}, targets={**rows.targets, "backward": labels}
        )

    def _following(self, shards: Shards, plan: Plan, index: np.ndarray, seq: Seq) -> np.ndarray:
        """[n, T] the next token of the stream; IGNORE after its last one."""
        labels = np.full(seq.ids.shape, IGNORE, np.int32)
        labels[:, :-1] = np.where(seq.real[:, 1:], seq.ids[:, 1:], IGNORE)
        more = np.flatnonzero(index + self.streams < plan.rows)
        # the first token of the row that continues this one
        piece = plan.arrays["row_start"][index[more] + self.streams]
        first = np.asarray(shards.ids).take(plan.arrays["start"][piece], mode="clip")
        ends = plan.arrays["size"][piece] == 0  # nothing but the token that closes a document
        labels[more, seq.length[more] - 1] = np.where(ends, self.kinds[1].after[0], first)
        return labels
