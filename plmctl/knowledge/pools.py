"""Entities by type, each with the names by which texts call it, as replacements for each other."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from plmctl.knowledge.directory import KnowledgeDirectory
from plmctl.text.tokenizer import Tokenizer


class Pools:
    """The entities that may stand in for each other.

    Args:
        knowledge: the entities.
        tokenizer: The tokenizer of the text in which they occur.
        least_count: a name is used if links called the entity so, so often; an entity of which no
            name is, has its own name.
        longest: most tokens of a name.
        any_type: a control: what others of its type could stand in for, all entities may.
    """

    def __init__(
        self,
        knowledge: KnowledgeDirectory,
        tokenizer: Tokenizer,
        *,
        least_count: int,
        longest: int,
        any_type: bool = False,
    ) -> None:
        self.knowledge, self.tokenizer = knowledge, tokenizer
        self.least_count, self.longest, self.any_type = least_count, longest, any_type
        self._encoded: dict[tuple[str, bool], list[int]] = {}

    @cached_property
    def names(self) -> list[tuple[str, ...]]:
        """The names that are used of each entity."""
        found = []
        for entity in self.knowledge:
            seen = tuple(text for text, count in entity.aliases if count >= self.least_count)
            found.append(seen or ((entity.name,) if entity.name else ()))
        return found

    @cached_property
    def all_names(self) -> list[frozenset[str]]:
        """All names of each entity, in lower case."""
        return [
            frozenset(text.lower() for text in (entity.name, *dict(entity.aliases)))
            for entity in self.knowledge
        ]

    @cached_property
    def _named(self) -> np.ndarray:
        """[E] bool: there is a name that is used."""
        return np.array([bool(names) for names in self.names], bool)

    @cached_property
    def _typed(self) -> list[np.ndarray]:
        """The entities of each type, for types with at least two that have a name."""
        pools = (ids[self._named[ids]] for ids in self.knowledge.members.values())
        return [ids for ids in pools if len(ids) > 1]

    @cached_property
    def members(self) -> list[np.ndarray]:
        """The entities that may stand in for each other: those of a type, or all."""
        return [np.flatnonzero(self._named)] if self.any_type and self._typed else self._typed

    @cached_property
    def kinds(self) -> list[tuple[int, ...]]:
        """For each entity the numbers of its pools in `members`."""
        found: list[list[int]] = [[] for _ in range(len(self.knowledge))]
        for number, ids in enumerate(self._typed):
            for entity in ids.tolist():
                found[entity].append(0 if self.any_type else number)
        return [tuple(kinds) for kinds in found]

    def encode(self, name: str, spaced: bool) -> list[int]:
        """The tokens of a name; `spaced`: after a space."""
        key = (name, spaced)
        if key not in self._encoded:
            self._encoded[key] = self.tokenizer.encode(f" {name}" if spaced else name)
        return self._encoded[key]
