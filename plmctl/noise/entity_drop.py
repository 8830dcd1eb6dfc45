"""Wrong and missing entities (ERNIE; Zhang et al., 2019): the model is shown entities of which some
are others, some are left out, and says which they were.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np

from plmctl.core.batch import IGNORE, Rows
from plmctl.core.draws import Draws
from plmctl.core.errors import ConfigError
from plmctl.core.fields import Field
from plmctl.core.parts import part_of
from plmctl.noise.base import Noise
from plmctl.noise.units import find_spans


@part_of("noise")
class EntityDrop(Noise):
    """`replaced` of the marked entities are shown as any other one, `dropped` are not shown, and
    all are predicted (Zhang et al., 2019, arXiv:1905.07129, sec. 3.4: 5% and 15%).

    `tracks.entity` is the id plus 1, 0 for none, and below 0 for any entity, which the model's
    table chooses (nn/entities.py). `unit`: each "position" is drawn by itself, as the released code
    does, or each "mention". `align`: an entity stands at "all" tokens of its mention (the released
    data), or at the "first" (the paper). With rates of 0 nothing is changed. `hide_masked`: a
    mention of which an earlier noise has hidden a token is not shown (KnowBERT: Peters et al.,
    2019, arXiv:1909.04164, sec. 3.4).
    `marks`: the spans that are shown, as tracks and targets of their name.
    Differs: another entity is any one of the table; in the released code any one of the batch.
    """

    reads = frozenset({"input", "spans.entity"})
    writes = frozenset({"tracks.entity", "targets.entity"})
    changes = False
    fields: Mapping[str, Field] = {
        "targets.entity": Field("[n, T]", "int", "id of the entity of a token, or IGNORE"),
        "targets.meaning": Field("[n, T]", "int", "id of the meaning of a token, or IGNORE"),
    }

    def __init__(
        self,
        *,
        replaced: float,
        dropped: float,
        unit: Literal["position", "mention"] = "position",
        align: Literal["all", "first"] = "all",
        hide_masked: bool = False,
        marks: str = "entity",
    ) -> None:
        if not (replaced >= 0 and dropped >= 0 and replaced + dropped <= 1):
            allowed = "shares from 0, together at most 1"
            raise ConfigError(
                "noise.entity_drop.dropped", [replaced, dropped], allowed, fix="0.05 and 0.15"
            )
        self.replaced, self.dropped, self.unit, self.align = replaced, dropped, unit, align
        self.hide_masked, self.marks = hide_masked, marks
        self.reads = frozenset({"input", f"spans.{marks}"})
        self.reads |= {"targets.mlm"} if hide_masked else frozenset()
        target = f"targets.{marks}"
        self.writes = frozenset({f"tracks.{marks}", target})
        self.fields = {target: self.fields.get(target, self.fields["targets.entity"])}

    def __call__(self, rows: Rows, draws: Draws) -> Rows:
        seq = rows.seqs[rows.input]
        n, width = seq.ids.shape
        row, start, length, identity = find_spans(rows, self.marks).T[:4]
        if self.align == "first":
            length = np.minimum(length, 1)
        mention = np.repeat(np.arange(len(row)), length)
        inside = np.arange(length.sum()) - np.repeat(np.cumsum(length) - length, length)
        r, column = row[mention], start[mention] + inside
        drawn_at = column if self.unit == "position" else start[mention]
        lot = draws.uniform(rows.key, "shown", width)[r, drawn_at]
        other = draws.integers(rows.key, "other", 2**31 - 1, width)[r, drawn_at]
        shown = np.where(lot < self.replaced, -1 - other, identity[mention] + 1)
        is_dropped = (lot >= self.replaced) & (lot < self.replaced + self.dropped)
        if self.hide_masked:
            masked = rows.targets["mlm"] != IGNORE
            hidden = np.zeros(len(row), bool)
            np.logical_or.at(hidden, mention, masked[r, column])
            is_dropped |= hidden[mention]
        track, target = np.zeros((n, width), np.int32), np.full((n, width), IGNORE, np.int32)
        track[r, column] = np.where(is_dropped, 0, shown)
        target[r, column] = identity[mention]
        tracked = rows.with_seq(rows.input, seq.with_tracks(**{self.marks: track}))
        return tracked.with_targets(**{self.marks: target})

    def capacity(self, length: int) -> dict[str, int]:
        return {self.marks: length}
