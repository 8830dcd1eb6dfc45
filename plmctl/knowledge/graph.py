"""A knowledge graph in memory: names, triples by split, and the answers that are known."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np

HEAD, RELATION, TAIL = 0, 1, 2  # columns of triples
SPLITS = ("train", "valid", "test")
Side = Literal["head", "tail"]
SIDES: tuple[Side, Side] = ("head", "tail")
KINDS = ("1-1", "1-N", "N-1", "N-N")
MANY = 1.5  # entities on one side for each on the other, from which a relation has many
RANKED = ("valid", "test")  # splits other than train


@dataclass(frozen=True)
class KnowledgeGraph:
    """Entities, relations, and the triples of each split, by their numbers.

    Args:
        entities: names; entity n is the one at n.
        splits: {"train" and others: int64 [n, 3] = head, relation, tail}.
        texts: {entity: its description}, where the files have some.
        relation_texts: {relation: its description}.
        remarks: The reader's remarks, in words, each with file and line.
        held_out: whether valid was held out of the training file by us.
    """

    entities: tuple[str, ...]
    relations: tuple[str, ...]
    splits: Mapping[str, np.ndarray]
    texts: Mapping[int, str] = field(default_factory=dict, repr=False)
    relation_texts: Mapping[int, str] = field(default_factory=dict, repr=False)
    remarks: tuple[str, ...] = ()
    held_out: bool = False

    @cached_property
    def triples(self) -> np.ndarray:
        """int64 [n, 3] the triples of all splits."""
        return np.concatenate(list(self.splits.values()))

    @cached_property
    def fingerprint(self) -> str:
        """A hash of names and triples."""
        digest = hashlib.blake2b(digest_size=16)
        for names in (self.entities, self.relations):
            digest.update("\n".join(names).encode("utf-8", "surrogatepass"))
        for name, triples in self.splits.items():
            digest.update(f"{name} {len(triples)}".encode())
            digest.update(np.ascontiguousarray(triples).data)
        return digest.hexdigest()

    def describe_unknown(self) -> str:
        """One line on the answers that ranks cannot leave out, for want of a split; "" where no
        split is absent, or where nothing is ranked.
        """
        ranked = [name for name in RANKED if len(self.splits.get(name, ()))]
        absent = [name for name in RANKED if name not in ranked]
        if not ranked or not absent:
            return ""
        known = " and ".join(["train", *ranked])
        return (
            f"ranks leave out the known answers of {known} alone: there are no {absent[0]} triples,"
            " so their answers count as wrong ones, and scores are below published ones"
        )

    def spell(self, split: str) -> str:
        """The triples of a split by name, one a line with tabs between, as such files have them."""
        return "".join(
            f"{self.entities[head]}\t{self.relations[relation]}\t{self.entities[tail]}\n"
            for head, relation, tail in self.splits[split].tolist()
        )

    def kinds(self) -> np.ndarray:
        """int64 [relations] the index in `KINDS` of each, by the training triples.

        A relation has many tails where a (head, relation) has `MANY` or more on average (Bordes et
        al., 2013, sec. 4.3).
        """
        train = self.splits["train"]
        heads, tails = (_count_answers(train, side, len(self.relations)) for side in SIDES)
        return 2 * (heads >= MANY) + (tails >= MANY)


def _count_answers(triples: np.ndarray, side: Side, relations: int) -> np.ndarray:
    """float [relations] the mean number of entities on `side` for each (other entity, relation)."""
    other = TAIL if side == "head" else HEAD
    different = np.unique(triples, axis=0)
    questions = np.unique(different[:, [other, RELATION]], axis=0)[:, 1]
    asked = np.bincount(questions, minlength=relations)
    return np.bincount(different[:, RELATION], minlength=relations) / np.maximum(asked, 1)


class Answers:
    """The entities that are known to complete (entity, relation) on one side.

    Args:
        triples: int64 [n, 3].
        side: The column that is predicted.
        entities: The number of entities.
        relations: The number of relations.
    """

    def __init__(self, triples: np.ndarray, side: Side, *, entities: int, relations: int) -> None:
        self.relations, self.entities = relations, entities
        known, asked = (TAIL, HEAD) if side == "head" else (HEAD, TAIL)
        question = triples[:, known] * relations + triples[:, RELATION]
        code = np.unique(question * entities + triples[:, asked])
        self._code, self._question, self._answer = code, code // entities, code % entities

    def find(self, known: np.ndarray, relation: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Find all answers to several questions.

        Args:
            known: int64 [B] the entity that is given.
            relation: int64 [B].

        Returns:
            (int64 [m] the question, int64 [m] an answer to it), in the order of the questions.
        """
        question = known * self.relations + relation
        low = np.searchsorted(self._question, question, "left")
        count = np.searchsorted(self._question, question, "right") - low
        row = np.repeat(np.arange(len(question)), count)
        place = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count) + low[row]
        return row, self._answer[place]

    def hold(self, known: np.ndarray, relation: np.ndarray, entity: np.ndarray) -> np.ndarray:
        """bool: whether `entity` is a known answer; the three broadcast against each other."""
        code = (known * self.relations + relation) * self.entities + entity
        place = np.minimum(np.searchsorted(self._code, code), len(self._code) - 1)
        return self._code[place] == code if len(self._code) else np.zeros(code.shape, bool)
