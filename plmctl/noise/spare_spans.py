"""Tokens of mentions that masking leaves as they are (ERICA; Qin et al., 2021)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from plmctl.core.batch import IGNORE, Rows
from plmctl.core.draws import Draws
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.noise.base import Noise
from plmctl.noise.masking import expand_runs
from plmctl.noise.units import find_spans


@part_of("noise")
class SpareSpans(Noise):
    """Tokens that an earlier noise has hidden inside of the `spans` are restored, and not predicted
    (thunlp/ERICA, dataset.py, mlm_mask).

    Each token outside is hidden as often as before, so that in all fewer are.
    """

    def __init__(self, *, spans: Sequence[str] = ("entity",)) -> None:
        if not spans:
            raise ConfigError("noise.spare_spans.spans", [], "names of spans, such as [entity]")
        self.spans = list(spans)
        self.reads = frozenset({"input", "targets.mlm", *(f"spans.{name}" for name in spans)})

    def __call__(self, rows: Rows, draws: Draws) -> Rows:
        seq, target = rows.seqs[rows.input], rows.targets["mlm"]
        inside = np.zeros(seq.ids.size, bool)
        for name in self.spans:
            table = find_spans(rows, name)
            first = table[:, 0] * seq.ids.shape[1] + table[:, 1]
            inside[expand_runs(first, table[:, 2])] = True
        spared = inside.reshape(seq.ids.shape) & (target != IGNORE)
        ids = np.where(spared, target, seq.ids).astype(seq.ids.dtype)
        rows = rows.with_seq(rows.input, replace(seq, ids=ids))
        return rows.with_targets(mlm=np.where(spared, IGNORE, target).astype(target.dtype))
