"""Entities of a text as a sequence of their own, some hidden (Yamada et al., 2020: LUKE)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from plmctl.core.batch import IGNORE, Rows, Seq
from plmctl.core.draws import Draws
from plmctl.core.errors import ConfigError
from plmctl.core.fields import Field
from plmctl.core.parts import part_of
from plmctl.core.values import Count, Share
from plmctl.noise.base import Noise
from plmctl.noise.units import find_spans

UNKNOWN, MASKED, FIRST = 1, 2, 3  # as in nn/entity_tokens.py: what a network's table has first


@part_of("noise")
class EntityTokenMask(Noise):
    """The marked entities of a row as the sequence `entities`, in the order of the text; each is
    hidden with probability `rate` and then asked for (Yamada et al., 2020, arXiv:2010.01057, sec.
    3.3: 15%).

    `spans.entity` says where and which. Entities from `count` on are unknown and not asked for; of
    more than `most` in a row the last are left out. `shuffled`: every mention shows, and asks for,
    an entity that is drawn from all: a control that keeps all else.
    """

    reads = frozenset({"input", "spans.entity"})
    writes = frozenset({"entities", "targets.entities"})
    changes = False
    fields: Mapping[str, Field] = {
        "entities": Field("", "Seq", "the entities of a row, beside its tokens"),
        "tracks.mention_start": Field(
            "[n, E]", "int", "first token of the mention of each of the `entities`", lines="none"
        ),
        "tracks.mention_size": Field("[n, E]", "int", "how many tokens it has", lines="none"),
        "targets.entities": Field(
            "[n, E]", "int", "id of an entity that is hidden, IGNORE elsewhere", of="entities"
        ),
    }

    def __init__(
        self, *, count: Count, most: Count = 32, rate: Share = 0.15, shuffled: bool = False
    ) -> None:
        if not 0 <= rate <= 1:
            raise ConfigError("noise.entity_tokens.rate", rate, "0 to 1")
        self.count, self.most, self.rate, self.shuffled = count, most, rate, shuffled

    def __call__(self, rows: Rows, draws: Draws) -> Rows:
        n = len(rows.key)
        spans = find_spans(rows, "entity")
        order = np.lexsort((spans[:, 1], spans[:, 0]))
        row, start, size, identity = spans[order].T[:4]
        place = np.arange(len(row)) - np.searchsorted(row, row)
        kept = place < self.most
        at = row[kept], place[kept]
        ids, target = np.zeros((n, self.most), np.int32), np.full((n, self.most), IGNORE, np.int32)
        tracks = {
            name: np.zeros((n, self.most), np.int32) for name in ("mention_start", "mention_size")
        }
        tracks["mention_start"][at], tracks["mention_size"][at] = start[kept], size[kept]
        shown = identity[kept]
        if self.shuffled:
            shown = draws.integers(rows.key, "other", self.count, self.most)[at]
        known = shown < self.count
        hidden = known & (draws.uniform(rows.key, "hidden", self.most)[at] < self.rate)
        ids[at] = np.where(known, np.where(hidden, MASKED, FIRST + shown), UNKNOWN)
        target[at] = np.where(hidden, shown, IGNORE)
        length = np.bincount(at[0], minlength=n).astype(np.int64)
        sequence = Seq(ids, length, tracks, view=True)
        return rows.with_seq("entities", sequence).with_targets(entities=target)

    def capacity(self, length: int) -> dict[str, int]:
        return {"entities": self.most}
