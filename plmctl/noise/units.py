"""The units that masking chooses: single tokens, words, or marked spans, each inside one stretch of
ordinary tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from plmctl.core.batch import Rows
from plmctl.core.draws import HALF, Draws, unit
from plmctl.core.errors import DataError
from plmctl.noise.masking import NoiseBudget, expand_runs, find_document_begins
from plmctl.text.vocab import Vocab


@dataclass(frozen=True)
class Units:
    """Every token of the rows, flattened to slots 0 .. n*T-1, belongs to one unit; a special token
    is a unit by itself.

    A stretch is a run of ordinary units without a special token and without the end of a row or
    document inside.
    """

    ordinary: np.ndarray  # [n*T] bool: not a special token, not padding
    begins: np.ndarray  # [n*T] bool: the first token of a unit
    start: np.ndarray  # [u + 1] slot of each unit's first token; the last one is n*T
    of_slot: np.ndarray  # [n*T] int32 number of the unit
    stretch: np.ndarray  # [u] int32 number of the stretch
    edge: np.ndarray  # [stretches + 1] first unit of each stretch

    def stop(self, unit: np.ndarray, count: np.ndarray) -> np.ndarray:
        """The first unit after `count` units from `unit` on, or after fewer if the stretch ends."""
        return np.minimum(unit + count, self.edge[self.stretch[unit] + 1])

    def length(self, unit: np.ndarray, stop: np.ndarray) -> np.ndarray:
        """The number of tokens of the units from `unit` to before `stop`."""
        return self.start[stop] - self.start[unit]

    def slots(self, unit: np.ndarray, stop: np.ndarray) -> np.ndarray:
        """The slots of all tokens of the units from `unit` to before `stop`."""
        return expand_runs(self.start[unit], self.length(unit, stop))


def find_units(rows: Rows, vocab: Vocab, *, words: bool, spans: Sequence[str] = ()) -> Units:
    """Find the units of single tokens, or of `words` (by tracks.word_start), with each of the rows'
    `spans` as one unit.

    Where spans of two names overlap, those of the first name stay complete. A continuing piece
    begins a unit if nothing of its word is before it (the row begins in mid-word).
    """
    seq = rows.seqs[rows.input]
    special = vocab.special.take(seq.ids)
    begins = seq.tracks["word_start"].astype(bool) if words else np.ones(seq.ids.shape, bool)
    width = seq.ids.shape[1]
    for name in reversed(spans):
        _merge(begins.ravel(), find_spans(rows, name), width)
    begins |= special
    cuts = special.copy()  # where a stretch begins
    cuts[:, 1:] |= special[:, :-1]
    cuts |= _row_begins(rows)
    begins |= cuts
    start = np.flatnonzero(begins)
    opens = cuts.ravel()[start]
    return Units(
        ordinary=~special.ravel(),
        begins=begins.ravel(),
        start=np.append(start, begins.size),
        of_slot=np.cumsum(begins, dtype=np.int32) - np.int32(1),
        stretch=np.cumsum(opens, dtype=np.int32) - np.int32(1),
        edge=np.append(np.flatnonzero(opens), len(start)),
    )


def find_spans(rows: Rows, name: str) -> np.ndarray:
    """The rows' spans of one name, [m, 3+]; DataError if the data have none."""
    if name not in rows.spans:
        raise DataError(
            f"there are no spans '{name}' in these rows, only"
            f" {', '.join(rows.spans) or 'none at all'}",
            fix=f"data.path=<text>.jsonl data.spans=[{name}], with such spans marked in the text",
        )
    return rows.spans[name]


def scatter_spans(rows: Rows, spans: np.ndarray, vocab: Vocab, draws: Draws) -> np.ndarray:
    """`spans` [m, 3+] at random positions: as many in each stretch of ordinary tokens, as long, and
    apart from each other; a span that is longer than its stretch stays.
    """
    units = find_units(rows, vocab, words=False)
    width = rows.seqs[rows.input].ids.shape[1]
    slot = spans[:, 0] * width + spans[:, 1]
    stretch = units.stretch[units.of_slot[slot]]
    edge = units.start[units.edge]
    numbers = [
        unit((draws.words_at(rows.key, name, spans[:, 0], spans[:, 1]) >> HALF).astype(np.uint32))
        for name in ("order", "place")
    ]
    order, moved = np.lexsort((numbers[0], stretch)), spans.copy()
    for group in np.split(order, np.flatnonzero(np.diff(stretch[order])) + 1):
        if not len(group):
            continue
        begin, end = edge[stretch[group[0]]], edge[stretch[group[0]] + 1]
        size = spans[group, 2]
        free = int(end - begin - size.sum())
        if free >= 0:
            gaps = np.sort(np.floor(numbers[1][group] * (free + 1)).astype(np.int64))
            moved[group, 1] = (begin + gaps + np.cumsum(size) - size) % width
    return moved


def _merge(begins: np.ndarray, spans: np.ndarray, width: int) -> None:
    """Make each span one unit, and what follows it another (in place)."""
    first, length = spans[:, 0] * width + spans[:, 1], spans[:, 2]
    begins[expand_runs(first, length)] = False
    begins[first] = True
    after = first + length
    begins[after[after < len(begins)]] = True


def _row_begins(rows: Rows) -> np.ndarray:
    """[n, T] bool: where rows and documents begin."""
    seq = rows.seqs[rows.input]
    if "document" in seq.tracks:
        return find_document_begins(seq.tracks["document"])
    begins = np.zeros(seq.ids.shape, bool)
    begins[:, 0] = True
    return begins


def find_counted(rows: Rows, units: Units, budget: NoiseBudget) -> np.ndarray | None:
    """[n, T] bool: the tokens over which a budget counts; None: all."""
    if budget.count_specials:
        return None
    return units.ordinary.reshape(rows.seqs[rows.input].ids.shape)
