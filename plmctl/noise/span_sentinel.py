"""Spans behind sentinels (Raffel et al., 2020, T5): a sentinel replaces each span; the target is
the removed spans.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from plmctl.core.batch import Rows, Seq
from plmctl.core.draws import Draws
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.noise.base import Noise
from plmctl.noise.masking import Shuffled, expand_runs, find_documents, share_out, sum_before
from plmctl.noise.moves import find_stretches, gather, move_tokens
from plmctl.noise.units import Units, find_units
from plmctl.text.vocab import TokenLack, Vocab


class Ends(NamedTuple):
    """The documents of all rows: their first and last slots, and the tokens that close them."""

    first: np.ndarray  # [m] slot
    last: np.ndarray  # [m] slot
    token: np.ndarray  # [m] id of the closing special token
    there: np.ndarray  # [m] bool: it is in the row already


@part_of("noise")
class SpanSentinel(Noise):
    """`N = round(rate * n)` of n tokens in `S = round(N / mean_length)` spans, at least one of
    each; source and target:

        x1 .. <0> x7 .. <1> eos            <0> x5 x6 <1> x12 x13 x14 eos

    Clean and noise spans take turns, clean first; the N tokens, and the n - N others, are cut into
    S parts at random, all cuts with the same probability. (Raffel et al., 2020, arXiv:1910.10683,
    sec. 3.1.4 and 3.3.4; t5/data/preprocessors.py, random_spans_noise_mask, with its 32-bit
    rounding.) Sentinels are numbered from 0 in each document of a packed row. Differs: documents of
    a packed row, and stretches between special tokens, share the row's N and S by length; what then
    no longer fits into the row (documents hardly longer than a span) is cut off and counted in
    `values.cut`.
    """

    reads = frozenset({"text"})
    writes = frozenset({"source", "target", "values.cut"})
    removes = frozenset({"text"})

    def __init__(self, *, vocab: Vocab, rate: float, mean_length: float) -> None:
        if not 0 < rate < 1:
            raise ConfigError("noise.rate", rate, "0 < rate < 1")
        if mean_length < 1:
            raise ConfigError("noise.mean_length", mean_length, "at least 1 token")
        end = vocab.eos if vocab.eos is not None else vocab.sep
        if not vocab.sentinels or end is None:
            lacks = "sentinels" if not vocab.sentinels else "an end-of-text token"
            allowed = f"this tokenizer has no {lacks}"
            fix = "data.path=<text> tokenizer.sentinels=100, to tokenize again"
            raise TokenLack("noise", "span_sentinel", allowed, fix=fix)
        self.vocab, self.rate, self.mean, self.end = vocab, rate, mean_length, end
        self.sentinels = np.array(vocab.sentinels)

    def counts(self, length: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(noise tokens, spans) of rows of `length` ordinary tokens; 0 for fewer than two tokens,
        which cannot be cut.
        """
        noise = np.rint(length.astype(np.float32) * np.float32(self.rate)).astype(np.int64)
        noise = np.clip(noise, 1, np.maximum(length - 1, 1))
        spans = np.maximum(
            1, np.rint(noise.astype(np.float32) / np.float32(self.mean)).astype(np.int64)
        )
        return np.where(length < 2, 0, noise), np.where(
            length < 2, 0, np.minimum(spans, length - noise)
        )

    def _widths(self, length: int) -> tuple[int, int, int]:
        """(columns of the source, tokens in the spans, largest number of spans) of rows of `length`
        columns.
        """
        noise, spans = (int(x[0]) for x in self.counts(np.array([length])))
        return length - noise + spans + 1, noise, spans

    def input_length(self, length: int) -> int:
        """The largest n with `n - N + S + 1 <= length`, the 1 for the end-of-text token (T5: 568
        for 512).
        """
        # rounding changes n by a few tokens at most
        most = math.ceil(length / (1 - self.rate * (1 - 1 / self.mean))) + 8
        raw = np.arange(1, most)
        noise, spans = self.counts(raw)
        # the left side never falls
        return max(1, int(np.count_nonzero(raw - noise + spans + 1 <= length)))

    def columns(self, length: int) -> dict[str, int]:
        source, noise, spans = self._widths(length)
        return {"source": source, "target": noise + spans + 1}

    def __call__(self, rows: Rows, draws: Draws) -> Rows:
        seq = rows.seqs["text"]
        width = seq.ids.shape[1]
        columns, noise, most = self._widths(width)
        if most > len(self.sentinels):
            raise ConfigError(
                "noise.span_sentinel",
                ...,
                f"rows of {width} tokens have {most} spans, this tokenizer {len(self.sentinels)} "
                "sentinels",
                fix=(
                    f"tokenizer.sentinels={most}, in a new tokenizer,"
                    " or shorter rows, or a larger mean_length"
                ),
            )
        start, length = self._spans(rows, draws, find_units(rows, self.vocab, words=False))
        ends = find_ends(seq, self.vocab, self.end)
        document = np.searchsorted(ends.first, start, side="right") - 1
        number = expand_runs(
            np.zeros_like(ends.first), np.bincount(document, minlength=len(ends.first))
        )
        sentinel = self.sentinels[number].astype(seq.ids.dtype)
        packed = "document" in seq.tracks
        target = self._target(
            seq, start, length, document, sentinel, ends, noise + most + (most if packed else 1)
        )
        how = {"columns": columns, "pad": self.vocab.pad, "end": self.end}
        source = hide_spans(rows, start, length, sentinel, ends, **how)
        seqs = {**source.seqs, "source": source.seqs["text"], "target": target}
        del seqs["text"]
        return replace(source, seqs=seqs)

    def _spans(self, rows: Rows, draws: Draws, units: Units) -> tuple[np.ndarray, np.ndarray]:
        """(first slot, length) of every noise span, in order."""
        n, width = rows.seqs["text"].ids.shape
        start, size = find_stretches(units)
        row = start // width
        row_size = np.bincount(row, weights=size, minlength=n).astype(np.int64)
        noise_of_row, spans_of_row = self.counts(row_size)
        spans = share_out(
            spans_of_row, np.where(size > 1, size, 0), row, draws.uniform(rows.key, "spans")
        )
        spans = np.minimum(spans, size // 2)
        noise = np.minimum(
            share_out(noise_of_row, spans, row, draws.uniform(rows.key, "noise")), size - spans
        )
        some = spans > 0
        start, size, spans, noise = start[some], size[some], spans[some], noise[some]
        parts = self._parts(rows, draws, units, start, size, noise, spans)
        base = 2 * (np.cumsum(spans) - spans)
        length, clean = parts[expand_runs(base, spans)], parts[expand_runs(base + spans, spans)]
        return (
            np.repeat(start, spans) + sum_before(clean, spans) + clean + sum_before(length, spans),
            length,
        )

    @staticmethod
    def _parts(
        rows: Rows,
        draws: Draws,
        units: Units,
        start: np.ndarray,
        size: np.ndarray,
        noise: np.ndarray,
        spans: np.ndarray,
    ) -> np.ndarray:
        """The lengths of the `spans` parts into which the `noise` tokens of each stretch are cut,
        then those of its other tokens.

        The cuts are drawn in the slots of the stretch itself; its first `noise` slots stand for the
        noise tokens. A stretch of 8 tokens with noise 3 in 2 spans:

            slots            0  1  2 | 3  4  5  6  7      3 noise tokens, then 5 others
            a part begins    x     x | x  x               slots 0 and 3 always; one more cut each is
                drawn
            lengths          2  1    | 1  4               noise parts 2, 1; clean parts 1, 4
            row              c N N c c c c N              clean 1, noise 2, clean 4, noise 1
        """
        shape = rows.seqs["text"].ids.shape
        begin = np.stack([start, start + noise], 1).ravel()
        group = np.zeros(shape, np.int32)
        group.ravel()[units.start[units.edge[:-1]]] = 1
        group.ravel()[begin] = 1
        np.cumsum(group, axis=1, out=group)
        excluded = np.where(units.ordinary, np.uint32(0), ~np.uint32(0)).reshape(shape)
        # the first slot of each half begins a part already, so no cut is drawn there
        excluded.ravel()[begin] = ~np.uint32(0)
        cuts = np.zeros(group.size, bool)
        cuts[begin] = True
        slot, _ = Shuffled(rows, draws, excluded, group - 1).gather(
            expand_runs(begin, np.repeat(spans - 1, 2))
        )
        cuts[slot] = True
        begins = np.flatnonzero(cuts)
        end = np.repeat(np.stack([start + noise, start + size], 1).ravel(), np.repeat(spans, 2))
        return np.minimum(np.append(begins[1:], group.size), end) - begins

    def _target(
        self,
        seq: Seq,
        start: np.ndarray,
        length: np.ndarray,
        document: np.ndarray,
        sentinel: np.ndarray,
        ends: Ends,
        width: int,
    ) -> Seq:
        """The spans of each document, each after its sentinel, and the closing token."""
        # no noise, no target
        closed = np.flatnonzero(np.bincount(document, minlength=len(ends.first)))
        order = np.argsort(np.concatenate([document, closed]), kind="stable")
        size = np.concatenate([length + 1, np.ones_like(closed)])[order]
        # the slot before a span stands for its sentinel
        take = expand_runs(np.concatenate([start - 1, ends.last[closed]])[order], size)
        row = np.concatenate([start, ends.first[closed]])[order] // seq.ids.shape[1]
        total = np.bincount(row, weights=size, minlength=len(seq.ids))
        target, into = gather(seq, take, total.astype(np.int64), pad=self.vocab.pad, width=width)
        head = into[np.cumsum(size) - size]
        target.ids.ravel()[head] = np.concatenate([sentinel, ends.token[closed]])[order]
        return target


def find_ends(seq: Seq, vocab: Vocab, end: int) -> Ends:
    """The ends of all documents; one that no special token closes gets `end`."""
    first, length = find_documents(seq)
    last = first + length - 1
    token = seq.ids.ravel()[last]
    there = vocab.special[token]
    return Ends(first, last, np.where(there, token, end), there)


def hide_spans(
    rows: Rows,
    start: np.ndarray,
    length: np.ndarray,
    token: np.ndarray | int,
    ends: Ends,
    *,
    columns: int,
    pad: int,
    end: int,
) -> Rows:
    """Rows in which `token` replaces each span of `text`, and `end` closes open documents; what no
    longer fits into the columns is counted in `values.cut`.
    """
    seq = rows.seqs["text"]
    ids, keep = seq.ids.copy(), seq.real.copy()
    ids.ravel()[start] = token
    keep.ravel()[expand_runs(start + 1, length - 1)] = False
    take, total = np.flatnonzero(keep), np.count_nonzero(keep, axis=1)
    # where an open document is closed
    behind = np.searchsorted(take, ends.last[~ends.there], side="right")
    row = ends.last[~ends.there] // seq.ids.shape[1]
    added = behind + np.arange(len(behind))
    take, total = (
        np.insert(take, behind, take[behind - 1]),
        total + np.bincount(row, minlength=len(total)),
    )
    fits = np.minimum(total, columns)
    if (fits < total).any():
        inside = expand_runs(np.zeros_like(total), total) < np.repeat(fits, total)
        added = (np.cumsum(inside) - 1)[added[inside[added]]]
        take = take[inside]
    rows = replace(
        rows.with_seq("text", replace(seq, ids=ids)), values={**rows.values, "cut": total - fits}
    )
    return move_tokens(rows, take, fits, pad=pad, width=columns, added=added, token=end)
