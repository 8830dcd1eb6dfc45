"""Rows of pieces: stretches of the token shards with special tokens before and after, side by
side.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from plmctl.core.batch import Seq
from plmctl.data.formats import carried
from plmctl.data.formats.base import Plan
from plmctl.data.formats.carried import Wanted
from plmctl.noise.masking import expand_runs
from plmctl.text.template import Wrap
from plmctl.text.vocab import Vocab

if TYPE_CHECKING:
    from plmctl.data.shards import Shards


def plan_pieces(
    *,
    shards: Shards,
    width: int,
    row_start: np.ndarray,
    start: np.ndarray,
    size: np.ndarray,
    kind: np.ndarray,
    kinds: list[Wrap],
) -> Plan:
    """A plan over pieces: row r holds the pieces `row_start[r]` up to `row_start[r + 1]`; `kind`
    indexes `kinds`.

    `report` accounts for every token: tokens + repeated = laid_out + cut + dropped; laid_out +
    specials + padding = rows * width. Cut tokens come from the ends of laid-out pieces; dropped
    ones go with all of their sentence, pair or document.
    """
    rows = len(row_start) - 1
    laid_out, kind = int(size.sum()), kind.astype(np.int8)
    specials = int(np.array([wrap.size for wrap in kinds])[kind].sum())
    report = {
        "tokens": len(shards.ids),
        "laid_out": laid_out,
        "repeated": 0,
        "cut": 0,
        "dropped": 0,
        "specials": specials,
        "padding": rows * width - laid_out - specials,
        **carried.count_lost_spans(shards.spans, start, size),
    }
    arrays = {"row_start": row_start, "start": start, "size": size.astype(np.int32), "kind": kind}
    return Plan(rows, arrays, report, width)


def piece_lengths(plan: Plan, kinds: list[Wrap]) -> np.ndarray:
    """[m] tokens of each piece of a plan, its special tokens included."""
    specials = np.array([wrap.size for wrap in kinds])
    return np.asarray(plan.arrays["size"] + specials[plan.arrays["kind"]])


@dataclass(frozen=True)
class Layout:
    """Rows of pieces, with the positions of the pieces."""

    seq: Seq
    # [m] tokens of each slot: the pieces of each row in order, then its padding (maybe 0 tokens)
    slots: np.ndarray
    begin: np.ndarray  # [m] flattened (row, position) of each slot
    piece: np.ndarray  # [m] number of the piece inside its row, -1 for padding
    # name -> [k, 4] = row, start, length, id
    spans: dict[str, np.ndarray] = field(default_factory=dict)

    def fill(self, values: np.ndarray) -> np.ndarray:
        """[n, T]: each slot filled with its value."""
        return np.repeat(values, self.slots).reshape(self.seq.ids.shape)

    def isolate(self, number: np.ndarray, begin: np.ndarray) -> Seq:
        """The sequence with `tracks.document` (a number for each slot) and positions counted from
        `begin` of each slot.
        """
        position = np.arange(self.seq.ids.size).reshape(self.seq.ids.shape) - self.fill(begin)
        return self.seq.with_tracks(document=self.fill(number.astype(np.int32)), position=position)


@dataclass(frozen=True)
class Pieces:
    """The pieces of some rows, one row after the other."""

    count: np.ndarray  # [n] pieces of each row
    start: np.ndarray  # [m]
    size: np.ndarray  # [m]
    kind: np.ndarray  # [m]

    @classmethod
    def of(cls, plan: Plan, index: np.ndarray) -> Pieces:
        """The pieces of the rows `index` of a plan."""
        first = plan.arrays["row_start"][index]
        count = plan.arrays["row_start"][index + 1] - first
        where = expand_runs(first, count)
        return cls(count, *(plan.arrays[name][where] for name in ("start", "size", "kind")))


def lay_rows(
    shards: Shards,
    plan: Plan,
    index: np.ndarray,
    kinds: list[Wrap],
    vocab: Vocab,
    wanted: Wanted = None,
) -> Layout:
    """Lay out the rows `index` of a piece plan: ids int32 [n, T], and the wanted tracks and
    spans.
    """
    return lay_pieces(shards, Pieces.of(plan, index), kinds, vocab, plan.width, wanted)


def lay_pieces(
    shards: Shards,
    pieces: Pieces,
    kinds: list[Wrap],
    vocab: Vocab,
    width: int,
    wanted: Wanted = None,
) -> Layout:
    """Lay out rows of `width` tokens, padded, from their pieces.

    Two pieces of kind `cls .. sep` in a row of 10, with sizes 2 and 1:

        tokens of the row      cls a b sep cls c sep pad pad pad
        slots (their widths)   4           3         3
        piece                  0           1         -1
        begin                  0           4         7
    """
    n, count = len(pieces.count), pieces.count
    last = np.cumsum(count + 1) - 1  # slot of each row's padding
    padding = np.zeros(int(last[-1]) + 1 if n else 0, bool)
    padding[last] = True
    piece = np.arange(len(padding)) - np.repeat(last - count, count + 1)
    piece[last] = -1
    source = np.cumsum(~padding) - 1
    kind = pieces.kind[source]
    before = np.array([len(wrap.before) for wrap in kinds])[kind]
    slots = pieces.size[source] + np.array([wrap.size for wrap in kinds])[kind]
    slots[last] = 0
    length = np.add.reduceat(slots, last - count) if n else np.zeros(0, np.int64)
    slots[last] = width - length
    begin = np.cumsum(slots) - slots
    source_offset = np.repeat(pieces.start[source] - before - begin, slots)
    source_offset += np.arange(n * width)
    ids = np.asarray(shards.ids).take(source_offset, mode="clip").astype(np.int32)
    added = [expand_runs(begin[last], slots[last])]  # positions of padding and special tokens
    ids[added[0]] = vocab.pad
    for number, wrap in enumerate(kinds):
        slots_of_kind = np.flatnonzero((kind == number) & ~padding)
        tokens = [*enumerate(wrap.before), *enumerate(wrap.after, start=-len(wrap.after))]
        for step, token in tokens:
            added.append(
                begin[slots_of_kind] + (step if step >= 0 else slots[slots_of_kind] + step)
            )
            ids[added[-1]] = token
    where = (begin[~padding], before[~padding], pieces.start, pieces.size)
    tracks = _tracks(shards, vocab, ids, source_offset, added, where, (n, width), wanted)
    spans = {
        name: carried.gather_spans(marked, *where, width)
        for name, marked in shards.spans.items()
        if carried.is_wanted(f"spans.{name}", wanted)
    }
    seq = Seq(
        ids.reshape(n, width), length.astype(np.int64), tracks, full=bool((length == width).all())
    )
    return Layout(seq, slots, begin, piece, spans)


def _tracks(
    shards: Shards,
    vocab: Vocab,
    ids: np.ndarray,
    source_offset: np.ndarray,
    added: list[np.ndarray],
    where: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
    shape: tuple[int, int],
    wanted: Wanted,
) -> dict[str, np.ndarray]:
    """The wanted ones of word starts, sentence numbers and the tracks of the shards, each [n,
    T].
    """
    tracks = {}
    if carried.is_wanted("tracks.word_start", wanted):
        tracks["word_start"] = carried.gather_word_starts(
            shards, vocab, ids, source_offset, added
        ).reshape(shape)
    if carried.is_wanted("tracks.sentence", wanted):
        tracks["sentence"] = carried.number_sentences(shards, *where, shape)
        tracks["sentence"].ravel()[added[0]] = -1
    for name, values in shards.tracks.items():
        if name != "word_start" and carried.is_wanted(f"tracks.{name}", wanted):
            tracks[name] = carried.gather_track(values, source_offset, added).reshape(shape)
    return tracks
