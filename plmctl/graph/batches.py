"""Training batches of triples, with the entities that are drawn as wrong answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from plmctl.core.batch import Batch
from plmctl.core.draws import Draws
from plmctl.core.values import Whole, fit
from plmctl.data.reader import check_stage, stage_of
from plmctl.graph.losses.base import GraphLoss
from plmctl.knowledge.graph import HEAD, RELATION, SIDES, TAIL, Answers, KnowledgeGraph, Side

TRIES = 20  # how often an entity is drawn again that is a known answer


class TripleBatches:
    """Iterates over updates without end, each the list of this process's micro-batches; the state
    is the number of updates.

    The order of an epoch, and what is drawn for a triple, follow from the seed, the epoch and the
    number of the triple.

    Args:
        graph: The graph with the training triples.
        loss: says how many entities are drawn, and whether known answers are needed.
        sides: The sides that are predicted.
        batch_size: triples of an update, over all processes.
        micro_batch_size: The triples of a backward pass; None: all of a process.
        seed: The seed of the order and the draws.
        world: processes.
        rank: the number of this one.
    """

    stage = 0  # there are no stages here

    def __init__(
        self,
        graph: KnowledgeGraph,
        loss: GraphLoss,
        *,
        batch_size: int,
        sides: Sequence[Side] = SIDES,
        micro_batch_size: int | None = None,
        seed: int = 0,
        world: int = 1,
        rank: int = 0,
    ) -> None:
        self.triples, self.entities = graph.splits["train"], len(graph.entities)
        self.loss, self.sides, self.seed = loss, tuple(sides), seed
        self.batch_size, self.micro_batch_size = batch_size, micro_batch_size or batch_size
        self.world, self.rank, self.fingerprint = world, rank, graph.fingerprint
        sizes = {"entities": len(graph.entities), "relations": len(graph.relations)}
        needed = loss.known or loss.filtered
        self.answers = {
            side: Answers(self.triples, side, **sizes) for side in (self.sides if needed else ())
        }
        self._update, self._epoch, self._order = 0, -1, np.empty(0, np.int64)

    @property
    def updates_per_epoch(self) -> int:
        """How many batches the triples make; the last may be smaller."""
        return -(-len(self.triples) // self.batch_size)

    def __iter__(self) -> Iterator[list[Batch]]:
        return self

    def __next__(self) -> list[Batch]:
        epoch, number = divmod(self._update, self.updates_per_epoch)
        if epoch != self._epoch:
            self._epoch, self._order = epoch, self._shuffle(Draws(self.seed, epoch))
        rows = self._order[..., number * self.batch_size : (number + 1) * self.batch_size]
        self._update += 1
        low, high = (rows.shape[-1] * rank // self.world for rank in (self.rank, self.rank + 1))
        size = self.micro_batch_size
        parts = [rows[..., at : min(at + size, high)] for at in range(low, high, size)]
        # with fewer triples than processes, some processes have none
        spare = [] if parts else [replace(self.make(rows[..., :1], epoch), spare=True)]
        return spare or [self.make(part, epoch) for part in parts]

    def _shuffle(self, draws: Draws) -> np.ndarray:
        """int64 [n], or [sides, n] where each side has an order of its own: its questions are in
        random order, and their triples stand together.
        """
        numbers = np.arange(len(self.triples))
        words = draws.words(numbers, "order", 1)[:, 0]
        if not self.loss.grouped:
            return np.argsort(words, kind="stable")
        orders = []
        for side in self.sides:
            known = self.triples[:, HEAD if side == "tail" else TAIL]
            pairs = np.stack([known, self.triples[:, RELATION]], axis=1)
            group = np.unique(pairs, axis=0, return_inverse=True)[1].reshape(-1)
            of_group = draws.words(np.arange(group.max() + 1), f"order of {side}", 1)[:, 0]
            orders.append(np.lexsort((words, of_group[group])))
        return np.stack(orders)

    def make(self, rows: np.ndarray, epoch: int) -> Batch:
        """The batch of the triples of these numbers, [B], or [sides, B] of each side."""
        triples, draws = self.triples[rows], Draws(self.seed, epoch)
        values = {"head": triples[..., HEAD], "relation": triples[..., RELATION]}
        values["tail"], spans = triples[..., TAIL], dict[str, np.ndarray]()
        for side in self.sides:
            if self.loss.negatives:
                values[f"drawn_{side}"] = self._draw(rows, triples, side, draws)
            if self.loss.known:
                known = triples[:, HEAD if side == "tail" else TAIL]
                pairs = self.answers[side].find(known, triples[:, RELATION])
                spans[f"known_{side}"] = np.stack(pairs, axis=1)
        return Batch(
            key=torch.from_numpy(np.atleast_2d(rows)[0]),
            seqs={},
            values={name: torch.from_numpy(np.ascontiguousarray(v)) for name, v in values.items()},
            spans={name: torch.from_numpy(pairs) for name, pairs in spans.items()},
            counts={"tokens": rows.shape[-1], "rows": rows.shape[-1]},
        )

    def _draw(self, rows: np.ndarray, triples: np.ndarray, side: Side, draws: Draws) -> np.ndarray:
        """int64 [B, K] entities that replace those on `side`."""
        drawn = draws.integers(rows, f"drawn {side}", self.entities, self.loss.negatives)
        if not self.loss.filtered:
            return drawn
        known, relation = triples[:, HEAD if side == "tail" else TAIL], triples[:, RELATION]
        for attempt in range(TRIES):
            wrong = self.answers[side].hold(known[:, None], relation[:, None], drawn)
            if not wrong.any():
                break
            name = f"drawn {side} again {attempt}"
            again = draws.integers(rows, name, self.entities, self.loss.negatives)
            drawn = np.where(wrong, again, drawn)
        return drawn

    def state_dict(self) -> dict[str, Any]:
        """The number of updates, and a fingerprint of the triples."""
        return {"updates": self._update, **stage_of(self)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where the state was taken; DataError if the triples are others."""
        check_stage(self, dict(state), "other triples", "data.path and seed")
        self._update = fit(state["updates"], Whole)
