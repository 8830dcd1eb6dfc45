"""Locally shuffled words (Lample et al., 2018): no word moves further than k positions, and the
model restores the order.
"""

from __future__ import annotations

import numpy as np

from plmctl.core.batch import Rows
from plmctl.core.draws import Draws
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.noise.base import Denoising, split_source
from plmctl.noise.moves import make_movable, permute
from plmctl.noise.units import Units, find_units
from plmctl.text.vocab import Vocab


@part_of("noise")
class WordShuffle(Denoising):
    """Sorts the words of a stretch by `i + (distance + 1) * u_i`, u_i ~ U[0, 1): `|sigma(i) - i| <=
    distance`.

    (Lample et al., 2018, arXiv:1711.00043, sec. 2.3: k = 3.)
    Differs: the public code draws `i + 3 * u_i` where the paper's formula for k = 3 is `i + 4 *
    u_i`; here it is the paper's.
    """

    reads = frozenset({"input", "tracks.word_start"})

    def __init__(self, *, vocab: Vocab, distance: int) -> None:
        if distance < 1:
            raise ConfigError(
                "noise.distance", distance, "at least 1: the positions that a word may move"
            )
        self.vocab, self.distance = make_movable(vocab), distance

    def __call__(self, rows: Rows, draws: Draws) -> Rows:
        rows = split_source(rows)
        n, width = rows.seqs[rows.input].ids.shape
        units = find_units(rows, self.vocab, words=True)
        order = self._keys(rows, draws, units)
        order.sort(axis=1)
        column = (order & order.dtype.type((1 << (width - 1).bit_length()) - 1)).astype(np.int64)
        column += np.arange(n)[:, None] * width
        return permute(rows, column.ravel())

    def _keys(self, rows: Rows, draws: Draws, units: Units) -> np.ndarray:
        """[n, T] unsigned [position + noise | column]: one for each token; the first part is equal
        within a word.

        Positions leave a gap of `distance + 1` between stretches, so that no word enters another
        stretch.
        """
        n, width = rows.seqs[rows.input].ids.shape
        reach = self.distance + 1
        low = (width - 1).bit_length()
        position_bits = (width * (reach + 1)).bit_length()  # bits of the largest position
        kind = np.uint32 if low + position_bits <= 22 else np.uint64
        fine = (
            (32 if kind is np.uint32 else 64) - low - position_bits
        )  # bits of the fraction, at least 10
        drawn = min(fine, 20)
        index = (
            np.arange(len(units.stretch), dtype=np.int64) + units.stretch.astype(np.int64) * reach
        )
        first = units.of_slot.reshape(n, width)[:, 0]
        lot = draws.bits(rows.key, "word", width).ravel()[units.start[:-1]].astype(np.uint64)
        lot = (lot * np.uint64(reach << drawn) >> np.uint64(32)) << np.uint64(fine - drawn)
        lot[~units.ordinary[units.start[:-1]]] = 0
        row = units.start[:-1] // width
        position = (index - index[first][row]).astype(np.uint64) << np.uint64(fine)
        key = ((position + lot) << np.uint64(low)).astype(kind)
        return key.take(units.of_slot).reshape(n, width) | np.arange(width, dtype=kind)
