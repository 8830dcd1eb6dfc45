"""A graph of a few triples, and tables of random vectors for it."""

from __future__ import annotations

import numpy as np
import torch

from plmctl.graph.scores.base import Score
from plmctl.graph.tables import GraphTables
from plmctl.knowledge.graph import KnowledgeGraph

E, R, W = 7, 3, 6


def make_graph(seed: int = 0, triples: int = 30) -> KnowledgeGraph:
    """A random graph of `E` entities and `R` relations with all three splits."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, [E, R, E], (triples, 3))
    rows = rows[np.sort(np.unique(rows, axis=0, return_index=True)[1])]
    parts = np.split(rows, [len(rows) // 2, 3 * len(rows) // 4])
    return KnowledgeGraph(
        tuple(f"e{n}" for n in range(E)),
        tuple(f"r{n}" for n in range(R)),
        dict(zip(("train", "valid", "test"), parts, strict=True)),
    )


def make_tables(score: Score, *, reciprocal: bool = False, seed: int = 0) -> GraphTables:
    """Tables of numbers from a normal distribution, in float64."""
    tables = GraphTables(score, entities=E, relations=R, width=W, reciprocal=reciprocal).double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for table in (tables.entity, tables.relation):
            table.copy_(torch.randn(table.shape, generator=generator, dtype=torch.float64))
    return tables
