"""The possible meanings of a mention: the entities of a name, and how often it means each."""

from __future__ import annotations

from collections import defaultdict
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np

from plmctl.core.parts import Opens, part_of
from plmctl.core.values import Count
from plmctl.knowledge.directory import KnowledgeDirectory, confirm

NONE = -1  # value of an empty slot


@part_of("candidates")
class CandidateTable:
    """For each entity the candidates of its most frequent name, the likeliest first, and their
    priors: how often the name means each of them.

    Args:
        path: a knowledge directory, in which the ids of the text stand; None: made-up names of
            `most` entities each.
        most: candidates of a name.
        count: entities without `path`.
        control: "shuffled" gives every entity the candidates of another.
        seed: The seed of the control.
    """

    opens: ClassVar[Opens] = {"path": confirm}

    def __init__(
        self,
        *,
        path: str | None = None,
        most: Count = 30,
        count: Count = 1000,
        control: Literal["none", "shuffled"] = "none",
        seed: int = 0,
    ) -> None:
        self.path, self.most, self.count = path, most, count
        self.control, self.seed = control, seed

    @cached_property
    def tables(self) -> tuple[np.ndarray, np.ndarray]:
        """(int64 [E, K] candidates of each entity, `NONE` behind the last; float32 [E, K] their
        priors).
        """
        ids, priors = self._invent() if self.path is None else self._read(self.path)
        if self.control == "shuffled":
            order = np.random.default_rng(self.seed).permutation(len(ids))
            ids, priors = ids[order], priors[order]
        return ids, priors

    def _invent(self) -> tuple[np.ndarray, np.ndarray]:
        """Neighbours in the order of ids share a name, and all are as likely."""
        entity = np.arange(self.count)[:, None]
        ids = entity - entity % self.most + np.arange(self.most)
        ids = np.where(ids < self.count, ids, NONE)
        priors = (ids != NONE) / (ids != NONE).sum(1, keepdims=True)
        return ids, priors.astype(np.float32)

    def _read(self, path: str) -> tuple[np.ndarray, np.ndarray]:
        meanings: dict[str, list[tuple[int, int]]] = defaultdict(list)  # meanings of each name
        first: list[str] = []
        for number, entity in enumerate(KnowledgeDirectory(path)):
            names = entity.aliases or ((entity.name, 1),)
            first.append(names[0][0])
            for name, count in names:
                meanings[name].append((number, max(1, count)))
        ids = np.full((len(first), self.most), NONE, np.int64)
        priors = np.zeros(ids.shape, np.float32)
        for number, name in enumerate(first):
            own = sorted(meanings[name], key=lambda pair: (-pair[1], pair[0]))
            total = sum(count for _, count in own)
            for place, (entity_id, count) in enumerate(own[: self.most]):
                ids[number, place], priors[number, place] = entity_id, count / total
        return ids, priors
