"""Streams whose rows end in a pair of segments (Yang et al., 2019: XLNet)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from plmctl.core.batch import Rows, Seq
from plmctl.core.errors import ConfigError
from plmctl.core.fields import Field
from plmctl.core.parts import part_of
from plmctl.data.formats.base import Format, Plan
from plmctl.data.formats.blocks import make_closing_wrap
from plmctl.data.formats.carried import Wanted
from plmctl.data.formats.edges import CONTINUES, Stream, document_edges, sentence_edges
from plmctl.data.formats.pairs import PAIR, check_copies, check_rate, shorten_pairs
from plmctl.data.formats.pieces import Layout, lay_rows, plan_pieces
from plmctl.text.template import Wrap, find_special
from plmctl.text.vocab import Vocab

if TYPE_CHECKING:
    from plmctl.data.shards import Shards


class Tails(NamedTuple):
    """The tokens after the reused part of each row: offsets in the stream; whether B is random."""

    a_end: np.ndarray  # [n]
    b_begin: np.ndarray
    b_end: np.ndarray
    random: np.ndarray


@part_of("format")
class StreamPair(Format):
    """`R A sep B sep cls`: R are the next `reuse_length` tokens of the row's stream, A continues
    them.

    Row `t * streams + b` reads stream b from token `t * reuse_length` on; `values.continues` as in
    `Segments`, for R only. A ends with a sentence drawn among the sentences that end within the
    row, and B continues it. With `random_rate`, or if no sentence ends, B begins anywhere in the
    stream, in complete sentences, and `labels.pair` is 1. The longer of A and B loses tokens at its
    end (B on ties) until the row is full. `tracks.segment`: 0 for R, A and its sep, 1 for B and its
    sep, 2 for cls. `reversed=True`: the second half of the rows read the streams of the first
    backwards (`values.reversed`); their R, A and B run from right to left, and a word starts where
    its reversed run does. (arXiv:1906.08237, sec. 2.4, 2.5 and zihangdai/xlnet data_utils.py: 256
    of 512 tokens, random_rate 0.5.) Differs: the code's label is 1 where B continues A. Streams are
    cut again in every epoch if `copies` is null.
    """

    ordered = anchors_last = True
    last_segment = 2  # segment of the cls token
    fields: Mapping[str, Field] = {
        **CONTINUES,
        **PAIR,
        "values.reversed": Field(
            "[n]", "bool", "the row's text runs from its end to its beginning"
        ),
    }
    streams: int

    def __init__(
        self,
        *,
        vocab: Vocab,
        max_length: int,
        reuse_length: int,
        streams: int,
        random_rate: float,
        reversed: bool,
        copies: int | None = None,
    ) -> None:
        check_rate("random_rate", random_rate)
        check_copies(copies)
        if streams < 1 or (reversed and streams % 2):
            allowed = "at least 1, even with format.reversed=true; train.batch_size"
            raise ConfigError("format.streams", streams, allowed)
        if not 1 <= reuse_length <= max_length - 5:
            allowed = (
                f"1 up to {max_length - 5},"
                " which leaves a token each to A and B and three to sep and cls"
            )
            raise ConfigError("format.reuse_length", reuse_length, allowed)
        self.vocab, self.max_length, self.reuse_length = vocab, max_length, reuse_length
        self.streams = streams
        self.random_rate = random_rate
        self.reversed = reversed
        self.copies = copies
        plain = ()
        sep, cls = find_special(vocab, "sep"), find_special(vocab, "cls")
        end = make_closing_wrap(vocab).after
        self.kinds = [
            Wrap((), ending + after)
            for after in (plain, (sep,), (sep, cls))
            for ending in ((), end)
        ]
        self.provides = frozenset(
            {
                "text",
                "tracks.segment",
                "labels.pair",
                "anchors",
                "values.continues",
                "values.reversed",
                *self.carried,
            }
        )

    def plan(self, shards: Shards, *, seed: int, epoch: int, input_length: int) -> Plan:
        edges, ends = document_edges(shards), sentence_edges(shards)
        stream, halves = Stream.of(edges, 1), 2 if self.reversed else 1
        # offsets in the stream, after closing tokens
        ends = ends + np.searchsorted(edges, ends, side="right") - 1
        streams = self.streams // halves
        length = int(stream.edges[-1]) // streams
        total, steps = length * streams, max(0, (length - input_length) // self.reuse_length + 1)
        step, number = np.divmod(np.arange(steps * streams), streams)
        halves_of_rows = []
        for half in range(halves):
            # backwards, the last stream comes first
            stream_start = length * (streams - 1 - number if half else number)
            begin = stream_start + (step + 1) * self.reuse_length
            bounds = np.append(ends[ends < total], total)
            bounds = total - bounds[::-1] if half else bounds
            rng = np.random.default_rng((seed, epoch, half))
            tails = self._tails(
                bounds, begin, stream_start, length, input_length - self.reuse_length - 3, rng
            )
            low = np.stack([begin - self.reuse_length, tails.b_begin], 1)  # R and A are one stretch
            high = np.stack([tails.a_end, tails.b_end], 1)
            low, high = (total - high, total - low) if half else (low, high)
            halves_of_rows.append(
                [x.reshape(steps, streams, *x.shape[1:]) for x in (low, high, tails.random)]
            )
        low, high, random = (
            np.concatenate(x, 1).reshape(-1, *x[0].shape[2:])
            for x in zip(*halves_of_rows, strict=True)
        )
        plan = self._plan(shards, stream, low, high, input_length)
        stream_start = np.arange(streams) * length
        # tokens that no R reads
        cut = len(shards.ids) - int(
            stream.cut(stream_start, stream_start + steps * self.reuse_length).size.sum()
        )
        repeated = plan.report["laid_out"] + cut - len(shards.ids)
        plan.report.update(cut=cut, repeated=repeated, random_pairs=int(random.sum()))
        plan.arrays.update(pair=random.astype(np.int8))
        return plan

    def _tails(
        self,
        bounds: np.ndarray,
        begin: np.ndarray,
        low: np.ndarray,
        length: int,
        room: int,
        rng: np.random.Generator,
    ) -> Tails:
        """A and B after the offsets `begin` of streams of `length` tokens from `low` on; `bounds`:
        where sentences meet.
        """
        first = np.searchsorted(bounds, begin, side="right")
        past = np.searchsorted(bounds, begin + room)
        # `count` sentences end inside the row
        stop, count = np.minimum(bounds[past], low + length), past - first
        random = (rng.random(len(begin)) < self.random_rate) | (count == 0)
        drawn = bounds[np.minimum(first + (rng.random(len(begin)) * count).astype(np.int64), past)]
        a_end = np.where(count > 0, drawn, stop)
        need = np.maximum(1, room - (a_end - begin))
        random_start = low + (rng.random(len(begin)) * (length - need)).astype(np.int64)
        opens = np.maximum(bounds[np.searchsorted(bounds, random_start, side="right") - 1], low)
        closes = np.minimum(bounds[np.searchsorted(bounds, random_start + need)], low + length - 1)
        b_begin = np.where(random, opens, a_end)
        a, b = shorten_pairs(a_end - begin, np.where(random, closes, stop) - b_begin, room)
        return Tails(begin + a, b_begin, b_begin + b, random)

    def _plan(
        self, shards: Shards, stream: Stream, low: np.ndarray, high: np.ndarray, width: int
    ) -> Plan:
        """The plan of rows of two intervals of the stream each, [rows, 2]: R with A, and B."""
        count, start, size, closing = stream.cut(low.ravel(), high.ravel())
        # special tokens after a piece: none, sep, or sep and cls
        after = np.zeros(len(start), np.int8)
        after[np.cumsum(count) - 1] = np.arange(len(count)) % 2 + 1
        plan = plan_pieces(
            shards=shards,
            width=width,
            row_start=np.concatenate([[0], np.cumsum(count.reshape(-1, 2).sum(1))]),
            start=start,
            size=size,
            kind=2 * after + closing,
            kinds=self.kinds,
        )
        plan.arrays["sep"] = (high - low)[:, 0]  # where in the row A ends
        return plan

    def rows(self, shards: Shards, plan: Plan, index: np.ndarray, wanted: Wanted = None) -> Rows:
        layout = lay_rows(shards, plan, index, self.kinds, self.vocab, wanted)
        column, sep = np.arange(plan.width), plan.arrays["sep"][index][:, None]
        backward = (index % self.streams >= self.streams // 2) & self.reversed
        seq, spans = layout.seq, layout.spans
        if backward.any():
            seq, spans = self._flip(layout, column, sep, backward)
        segment = (column > sep).astype(np.int8)
        segment[:, -1] = self.last_segment
        return Rows(
            key=index,
            seqs={"text": seq.with_tracks(segment=segment)},
            spans=spans,
            anchors=np.stack([np.arange(len(index)), np.full(len(index), plan.width - 1)], 1),
            labels={"pair": plan.arrays["pair"][index].astype(np.int64)},
            values={"continues": index >= self.streams, "reversed": backward},
        )

    def _flip(
        self, layout: Layout, column: np.ndarray, sep: np.ndarray, backward: np.ndarray
    ) -> tuple[Seq, dict[str, np.ndarray]]:
        """R with A, and B, of the `backward` rows from right to left, with their tracks and
        spans.
        """
        inside = (column != sep) & (column < len(column) - 2)
        first = np.where(column < sep, 0, sep + 1)
        end = np.where(column < sep, sep, len(column) - 2)
        order = np.where(inside & backward[:, None], first + end - 1 - column, column)
        tracks = {
            name: np.take_along_axis(track, order, 1) for name, track in layout.seq.tracks.items()
        }
        # the last token of a word comes first: the one after it in the text starts a word
        if "word_start" in tracks:
            starts = np.roll(tracks["word_start"], 1, axis=1) | (column == first)
            tracks["word_start"] = np.where(
                inside & backward[:, None], starts, tracks["word_start"]
            )
        spans = {}
        for name, table in layout.spans.items():
            spans[name] = table.copy()
            spans[name][:, 1] = np.minimum(
                order[table[:, 0], table[:, 1]], order[table[:, 0], table[:, 1] + table[:, 2] - 1]
            )
        return (
            replace(layout.seq, ids=np.take_along_axis(layout.seq.ids, order, 1), tracks=tracks),
            spans,
        )
