"""Frozen vectors of entities that a model reads in addition to its tokens; they are never trained,
and no checkpoint holds them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from plmctl.core.errors import ConfigError, DataError
from plmctl.core.parts import Opens, part_of
from plmctl.core.values import Count
from plmctl.knowledge.directory import KnowledgeDirectory, confirm
from plmctl.knowledge.known import TextSample, describe_known
from plmctl.knowledge.vectors import Control, confirm_vectors, match_names, read_vectors


@part_of("entities")
class EntityVectors(nn.Module):
    """The vector of each marked entity, [B, T] -> [B, T, E] (Zhang et al., 2019, arXiv:1905.07129,
    sec. 4.1: fixed vectors of TransE).

    `tracks.entity` counts entities from 1, and 0 is none. A negative number -n is any entity, the
    one at n - 1 modulo their number (noise/entity_drop.py). An entity without a vector counts as
    none. A checkpoint holds a fingerprint of the vectors, and refuses others.

    Args:
        path: a vectors directory, or a run of plmctl graph; None: random vectors, `count` of them.
        knowledge: the knowledge directory in which the ids of the text stand, whose entities are
            found in `path` by their names; None: the ids are rows of `path`.
        count: entities without `path`.
        entity_width: E, without `path`.
        control: "shuffled" gives each entity the vector of another, "random" random ones.
        seed: The seed of the control, or of vectors without `path`.
        marks: The marks of the text that mean these entities.
    """

    opens: ClassVar[Opens] = {"path": confirm_vectors, "knowledge": confirm}

    vectors: Tensor
    known: Tensor
    fingerprint: Tensor

    def __init__(
        self,
        *,
        entity_width: Count,
        path: str | None = None,
        knowledge: str | None = None,
        count: Count = 1000,
        control: Control = "none",
        seed: int = 0,
        marks: str = "entity",
    ) -> None:
        super().__init__()
        self.marks = marks
        if torch.empty(0).is_meta:  # where nothing has values, no file is read
            table, known = np.zeros((1, entity_width), np.float32), np.ones(1, bool)
        elif path is None:
            table = np.random.default_rng(seed).standard_normal((count, entity_width), np.float32)
            table, known = table * entity_width**-0.5, np.ones(count, bool)
        else:
            table, known = _read(path, knowledge, control, seed)
        if table.shape[1] != entity_width:
            allowed = f"{table.shape[1]}, the width of the vectors in {path}"
            fix = f"{self._home}.entity_width={table.shape[1]}"
            raise ConfigError("entity_width", entity_width, allowed, fix=fix)
        self.width, self.count, self.path = entity_width, len(table), path
        rows = np.concatenate([np.zeros((1, entity_width), np.float32), table * known[:, None]])
        self.register_buffer("vectors", torch.from_numpy(rows), persistent=False)
        self.register_buffer("known", torch.from_numpy(np.append(False, known)), persistent=False)
        digest = hashlib.blake2b(rows.tobytes(), digest_size=7).digest()
        self.register_buffer("fingerprint", torch.tensor(int.from_bytes(digest), device="cpu"))

    @property
    def _home(self) -> str:
        """Where its settings stand."""
        base = "model" if self.marks == "entity" else f"model.further.{self.marks}"
        return f"{base}.entities"

    def find_rows(self, ids: Tensor) -> Tensor:
        """[...] the row of each number of `tracks.entity`; 0 where there is no vector."""
        rows = torch.where(ids < 0, 1 + (-ids - 1) % self.count, ids).long()
        rows = rows.masked_fill(rows > self.count, 0)
        return rows * self.known.to(rows.device)[rows]  # counts are made on the CPU

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """ids [B, T] -> (vectors [B, T, E], [B, T] bool: there is one)."""
        rows = self.find_rows(ids)
        return self.vectors[rows], rows > 0

    def describe_known(self, text: TextSample) -> str:
        """A line on how many mentions of a text have a vector; DataError where none has."""
        known = self.known.cpu().numpy()  # [1 + ids] bool
        ids = text.find_ids(self.marks)
        if not len(ids):
            first = self.marks == "entity"
            how = "" if first else f" lexicons=[{self.marks}:<names>]"
            spans = "entity" if first else f"entity,{self.marks}"
            raise DataError(
                f"the text has no marks '{self.marks}', which say what is mentioned where",
                fix=f"plmctl data link <text> dictionary=<names>{how} out=linked, then"
                f" data.path=linked/text.jsonl data.spans=[{spans}]",
            )
        entities = ids[ids < self.count]
        which = "of entities" if self.marks == "entity" else f"marked '{self.marks}'"
        what = f"mentions {which} have a " + ("vector" if self.path else "random vector")
        fix = f"{self._home}.path=<vectors of the entities of the text>"
        count = int(known[entities + 1].sum())
        line = describe_known(count, len(ids), what, file=self.path, fix=fix)
        return line if self.path else f"{line}: {self._home}.path names no others"

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        given, own = state_dict.get(f"{prefix}fingerprint"), self.fingerprint
        if given is not None and not own.is_meta and not given.is_meta and int(given) != int(own):
            problem = "the entity vectors differ from the ones of this model's training"
            fix = f"{self._home}.path=<the vectors of the training>"
            raise DataError(problem, file=self.path, fix=fix)
        super()._load_from_state_dict(state_dict, prefix, *args)


def _read(
    path: str, knowledge: str | None, control: Control, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """(vectors [n, E] by the ids of the text, [n] whether each has a vector)."""
    found = read_vectors(Path(path).expanduser(), control, seed)
    if knowledge is None:
        return found.entity, np.ones(len(found.entity), bool)
    names: Sequence[str] = KnowledgeDirectory(knowledge).names
    rows = match_names(names, found.entities)
    if not (rows >= 0).any():
        what = f"none of its {len(names):,} entities has a vector in {path}"
        raise DataError(what, file=knowledge, fix="vectors of a graph with the same names")
    return found.entity[rows], rows >= 0
