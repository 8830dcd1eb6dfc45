"""A random order of the tokens that an earlier noise hides (Song et al., 2020, MPNet)."""

from __future__ import annotations

import numpy as np

from plmctl.core.batch import IGNORE, Rows
from plmctl.core.draws import Draws
from plmctl.core.parts import part_of
from plmctl.noise.base import Noise


@part_of("noise")
class PredictionOrder(Noise):
    """Writes `tracks.order`: 1, 2, ... for the tokens of `targets.mlm` of a row, at random, and 0
    for all others.

    Every order of a row's predicted tokens has the same probability. (arXiv:2004.09297, sec. 2.2:
    the last tokens of a permutation of the row are predicted, in its order.) Differs: special
    tokens are predicted only where the earlier noise chooses them.
    """

    reads = frozenset({"input", "targets.mlm"})
    writes = frozenset({"tracks.order"})
    changes = False

    def __call__(self, rows: Rows, draws: Draws) -> Rows:
        seq, hidden = rows.seqs[rows.input], rows.targets["mlm"] != IGNORE
        lots = np.where(hidden, draws.uniform(rows.key, "order", hidden.shape[1]), 2.0)
        rank = lots.argsort(1, kind="stable").argsort(1, kind="stable")
        order = np.where(hidden, rank + 1, 0).astype(np.int32)
        return rows.with_seq(rows.input, seq.with_tracks(order=order))
