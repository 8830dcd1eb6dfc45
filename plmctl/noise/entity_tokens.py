"""Entities of a text as a sequence of their own, some hidden (Yamada et al., 2020: LUKE)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Literal

import numpy as np

from plmctl.core.batch import IGNORE, Rows, Seq
from plmctl.core.draws import Draws
from plmctl.core.errors import ConfigError
from plmctl.core.fields import Field
from plmctl.core.parts import part_of
from plmctl.core.values import Count, Share
from plmctl.knowledge.directory import KnowledgeDirectory
from plmctl.knowledge.known import TextSample, describe_known
from plmctl.noise.base import Noise
from plmctl.noise.units import find_spans

UNKNOWN, MASKED, FIRST = 1, 2, 3  # as in nn/entity_tokens.py: what a network's table has first


@part_of("noise")
class EntityTokenMask(Noise):
    """The marked entities of a row as the sequence `entities`, in the order of the text. Each is
    hidden with probability `rate` and then predicted (Yamada et al., 2020, arXiv:2010.01057, sec.
    3.3: 15%).

    `spans.entity` says where and which. Entities from `count` on are unknown and not predicted; if
    a row has more than `most`, the last are left out. Two controls change only the entity that a
    mention shows and predicts. `control="shuffled"` draws it from all mentions of the knowledge
    directory, so entities are as frequent as before; "random" draws it from all entities. To
    exchange the entities of all mentions of one with those of another would change nothing, since
    their vectors are learned.
    """

    reads = frozenset({"input", "spans.entity"})
    writes = frozenset({"entities", "targets.entities"})
    changes = False
    fields: Mapping[str, Field] = {
        "entities": Field("", "Seq", "the entities of a row, in addition to its tokens"),
        "tracks.mention_start": Field(
            "[n, E]", "int", "first token of the mention of each of the `entities`", lines="none"
        ),
        "tracks.mention_size": Field("[n, E]", "int", "how many tokens it has", lines="none"),
        "targets.entities": Field(
            "[n, E]", "int", "id of an entity that is hidden, IGNORE elsewhere", of="entities"
        ),
    }

    def __init__(
        self,
        *,
        count: Count,
        most: Count = 32,
        rate: Share = 0.15,
        control: Literal["none", "shuffled", "random"] = "none",
        home: str | None = None,
    ) -> None:
        if not 0 <= rate <= 1:
            raise ConfigError("noise.entity_tokens.rate", rate, "0 to 1")
        self.count, self.most, self.rate, self.control = count, most, rate, control
        self._home = home

    @cached_property
    def _shares(self) -> np.ndarray:
        """[E] the share of all mentions that are of entity 0 .. e."""
        if self._home is None:
            what = "nothing says how often the entities of these tokens are mentioned"
            fix = (
                "tokenize the text.jsonl of plmctl data link, or noise.entity_tokens.control=random"
            )
            raise ConfigError("noise.entity_tokens.control", "shuffled", what, fix=fix)
        counts = np.cumsum(KnowledgeDirectory(self._home).mentions)
        shares: np.ndarray = counts / max(1, counts[-1])
        return shares

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
        if self.control == "random":
            shown = draws.integers(rows.key, "other", self.count, self.most)[at]
        elif self.control == "shuffled":
            drawn = draws.uniform(rows.key, "other", self.most)[at]
            shown = np.searchsorted(self._shares, drawn, "right").clip(0, len(self._shares) - 1)
        known = shown < self.count
        hidden = known & (draws.uniform(rows.key, "hidden", self.most)[at] < self.rate)
        ids[at] = np.where(known, np.where(hidden, MASKED, FIRST + shown), UNKNOWN)
        target[at] = np.where(hidden, shown, IGNORE)
        length = np.bincount(at[0], minlength=n).astype(np.int64)
        sequence = Seq(ids, length, tracks, view=True)
        return rows.with_seq("entities", sequence).with_targets(entities=target)

    def describe_known(self, text: TextSample) -> str:
        """A line on how many mentions of a text are of the first `count` entities; DataError where
        none is.
        """
        if self.control == "random":
            return ""
        known, there = int((text.entities < self.count).sum()), len(text.entities)
        needed = 1 + int(text.entities.max(initial=0))
        fix = f"model.entities.count={needed}, for all that the marks of the text name"
        what = f"mentions are of the first {self.count:,} entities"
        line = describe_known(known, there, what, fix=fix)
        return line if known == there else f"{line}; the others are unknown to the model: {fix}"

    def capacity(self, length: int) -> dict[str, int]:
        return {"entities": self.most}
