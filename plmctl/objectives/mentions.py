"""Entities of the documents of a batch: their vectors from the states of their mentions, and the
pairs of them with the relations that hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from plmctl.core.batch import Batch
from plmctl.knowledge.facts import FactTable


@dataclass(frozen=True)
class Mentions:
    """The mentions of a batch, and the entities of its documents that they mean.

    Args:
        spans: int64 [m, 4] row, start, length, id, on the CPU.
        entity: int64 [m] the number of the entity of each mention, in its document.
        document: int64 [e] the document of each entity.
        ids: int64 [e] its id.
    """

    spans: np.ndarray
    entity: np.ndarray
    document: np.ndarray
    ids: np.ndarray

    @classmethod
    def of(cls, batch: Batch) -> Mentions:
        """Those of `spans.entity`; a document is a row, or a part of a packed one."""
        spans = batch.require("spans.entity").cpu().numpy()[:, :4]
        track = batch.text.tracks.get("document")
        number = np.zeros(len(spans), np.int64)
        if track is not None:
            number = track.cpu().numpy()[spans[:, 0], spans[:, 1]]
        document = spans[:, 0] * batch.text.ids.shape[1] + number
        known, entity = np.unique(np.stack([document, spans[:, 3]], 1), axis=0, return_inverse=True)
        return cls(spans, entity.reshape(-1), known[:, 0], known[:, 1])

    def pool(self, states: Tensor) -> Tensor:
        """[e, W] the mean over the mentions of an entity of the mean over the tokens of each, out
        of `states [B, T, W]` (Qin et al., 2021, arXiv:2012.15022, sec. 3.2).
        """
        row, start, length = torch.from_numpy(self.spans[:, :3].T.copy()).to(states.device)
        wide = states.to(torch.promote_types(states.dtype, torch.float32))
        token = torch.repeat_interleave(torch.arange(len(row), device=row.device), length)
        inside = torch.arange(len(token), device=row.device)
        inside = inside - (length.cumsum(0) - length)[token]
        own = wide[row[token], start[token] + inside] / length[token, None]
        entity = torch.from_numpy(self.entity).to(states.device)
        count = torch.bincount(entity, minlength=len(self.ids))
        pooled = wide.new_zeros(len(self.ids), wide.shape[-1])
        return pooled.index_add(0, entity[token], own / count[entity[token], None])

    def groups(self) -> Iterator[np.ndarray]:
        """The entities of each document; they are in the order of documents."""
        edges = np.flatnonzero(np.diff(self.document, prepend=-1, append=-2))
        for first, end in pairwise(edges):
            yield np.arange(first, end)

    def pairs(self) -> np.ndarray:
        """int64 [p, 2] all ordered pairs of different entities of a document."""
        made = [np.zeros((0, 2), np.int64)]
        for own in self.groups():
            head, tail = np.repeat(own, len(own)), np.tile(own, len(own))
            made.append(np.stack([head, tail], 1)[head != tail])
        return np.concatenate(made)

    def facts(self, table: FactTable) -> tuple[np.ndarray, np.ndarray]:
        """(int64 [q, 3] head, tail, relation of every fact between them; int64 [k, 2] the pairs
        without any).
        """
        pairs = self.pairs()
        found, relation = table.find(self.ids[pairs[:, 0]], self.ids[pairs[:, 1]])
        unrelated = np.ones(len(pairs), bool)
        unrelated[found] = False
        return np.concatenate([pairs[found], relation[:, None]], 1), pairs[unrelated]


def seed_of(keys: Tensor, seed: int) -> np.random.Generator:
    """A generator of which the rows with these keys are the seed, so that what is drawn follows
    from the rows alone.
    """
    key = keys.cpu().numpy().astype(np.int64)
    return np.random.default_rng([seed, *(key & 0x7FFFFFFF)])
