"""Facts between entities that a text mentions: distant supervision by the triples of a knowledge
directory (Mintz et al., 2009).
"""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise
from typing import ClassVar, Literal

import numpy as np

from plmctl.core.errors import DataError
from plmctl.core.parts import Opens, part_of
from plmctl.knowledge.directory import TRIPLES, KnowledgeDirectory, confirm
from plmctl.knowledge.known import TextSample, describe_known

RANDOM_RELATIONS = 8
COUNTED = 1000  # documents in which facts are counted
LINKED = 0.2  # share of the pairs of entities that have random facts
# odd constants of a multiplicative hash
_MIX = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F), np.uint64(0x165667B19E3779F9))


@part_of("facts")
class FactTable:
    """The relations between two entities, by their ids.

    Args:
        knowledge: a knowledge directory with triples, in which the ids of the text stand; None:
            random facts.
        control: "shuffled" gives every fact the relation of another, by a permutation; "random"
            draws which pairs have a relation, and which.
        seed: The seed of the control, or of random facts without a directory.
    """

    opens: ClassVar[Opens] = {"knowledge": confirm}

    def __init__(
        self,
        *,
        knowledge: str | None = None,
        control: Literal["none", "shuffled", "random"] = "none",
        seed: int = 0,
    ) -> None:
        self.knowledge, self.control, self.seed = knowledge, control, seed
        self.is_random = knowledge is None or control == "random"

    @cached_property
    def _directory(self) -> KnowledgeDirectory:
        assert self.knowledge is not None
        return KnowledgeDirectory(self.knowledge)

    @cached_property
    def names(self) -> list[str]:
        """The names of the relations."""
        if self.knowledge is None:
            return [f"relation {number}" for number in range(RANDOM_RELATIONS)]
        return self._directory.relations

    @cached_property
    def triples(self) -> np.ndarray:
        """int64 [k, 3] head, relation, tail, sorted by head and tail; without random facts."""
        triples = self._directory.triples
        if not len(triples):
            what = "no triples between its entities"
            fix = "plmctl data link data.path=<text> triples=<file>, or none: random facts"
            raise DataError(what, file=self._directory.folder / TRIPLES, fix=fix)
        if self.control == "shuffled":
            order = np.random.default_rng(self.seed).permutation(len(triples))
            triples = np.stack([triples[:, 0], triples[order, 1], triples[:, 2]], 1)
        return triples[np.lexsort((triples[:, 1], triples[:, 2], triples[:, 0]))]

    @cached_property
    def _codes(self) -> tuple[np.ndarray, int]:
        size = int(self.triples[:, [0, 2]].max()) + 1
        return self.triples[:, 0] * size + self.triples[:, 2], size

    def find(self, head: np.ndarray, tail: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The facts of pairs of entities.

        Args:
            head: int64 [p] ids.
            tail: int64 [p] ids.

        Returns:
            (int64 [q] the pair, int64 [q] a relation that holds in it), in the order of the pairs.
        """
        if self.is_random:
            return self._draw(head, tail)
        codes, size = self._codes
        known = (head < size) & (tail < size)
        code = np.where(known, head * size + tail, -1)
        low, high = np.searchsorted(codes, code, "left"), np.searchsorted(codes, code, "right")
        count = high - low
        pair = np.repeat(np.arange(len(head)), count)
        place = np.arange(len(pair)) - np.repeat(np.cumsum(count) - count, count) + low[pair]
        return pair, self.triples[place, 1]

    def describe_known(self, text: TextSample) -> str:
        """A line on how many pairs of entities of a document have a fact; DataError where none
        has.
        """
        edges = np.flatnonzero(np.diff(text.documents, prepend=-1, append=-2))[: COUNTED + 1]
        known = total = 0
        for first, end in pairwise(edges.tolist()):
            own = np.unique(text.entities[first:end])
            head, tail = np.repeat(own, len(own)), np.tile(own, len(own))
            other = head < tail
            pair, _ = self.find(
                np.concatenate([head[other], tail[other]]),
                np.concatenate([tail[other], head[other]]),
            )
            known += len(np.unique(pair % max(1, other.sum())))
            total += int(other.sum())
        what = "pairs of entities of a document have a fact"
        fix = "triples of the entities of the text: plmctl data link triples=<file>"
        line = describe_known(known, total, what, file=self.knowledge, fix=fix)
        return f"{line}, by chance: facts are random" if self.is_random else line

    def _draw(self, head: np.ndarray, tail: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        mixed = (
            head.astype(np.uint64) * _MIX[0]
            + tail.astype(np.uint64) * _MIX[1]
            + np.uint64(self.seed + 1) * _MIX[2]
        )
        mixed = (mixed ^ (mixed >> np.uint64(29))) * _MIX[0]
        lot = (mixed >> np.uint64(40)).astype(np.float64) / 2**24
        pair = np.flatnonzero(lot < LINKED)
        return pair, (lot[pair] / LINKED * len(self.names)).astype(np.int64)
