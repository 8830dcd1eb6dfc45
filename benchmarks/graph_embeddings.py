"""Embeddings of a knowledge graph beside pykeen, at equal width: triples per second and MRR.

    python benchmarks/graph_embeddings.py --data fb15k237 --width 128 --epochs 2
    python benchmarks/graph_embeddings.py --data wn18rr --score rotate --sampled --width 128

Both libraries train the same score from the same first vectors, for the same number of epochs, with
Adagrad, the same number of updates, and reciprocal relations where all entities are compared.
They run in turns (plmctl, pykeen, pykeen, plmctl, ...). A triple counts once, however often it is
asked. The filtered ranks of the first validation triples are computed by the same code (plmctl's,
which is tested beside pykeen's) from the vectors of each library.

  all entities  plmctl: graph_loss=one_vs_all, grouped. pykeen: LCWA with cross-entropy. Both ask
                each (head, relation) once an epoch, for all of its tails
  --sampled     plmctl: graph_loss=self_adversarial, K entities drawn for each head and each tail.
                pykeen: sLCWA with NSSALoss, 2 K triples drawn for each triple
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from plmctl.graph.batches import TripleBatches
from plmctl.graph.losses.base import GraphLoss
from plmctl.graph.losses.one_vs_all import OneVsAll
from plmctl.graph.losses.self_adversarial import SelfAdversarial
from plmctl.graph.objective import LinkPrediction
from plmctl.graph.ranks import rank
from plmctl.graph.scores.base import Score
from plmctl.graph.scores.complex import ComplEx
from plmctl.graph.scores.distmult import DistMult
from plmctl.graph.scores.rotate import RotatE
from plmctl.graph.scores.transe import TransE
from plmctl.graph.tables import GraphTables
from plmctl.knowledge.graph import HEAD, RELATION, TAIL, KnowledgeGraph
from plmctl.knowledge.triples import read_graph
from plmctl.models.base import Model
from plmctl.training.device.allocator import keep_freed_memory
from plmctl.training.device.precision import choose

SCORES: dict[str, tuple[Callable[[], Score], str, dict[str, object]]] = {
    "transe": (lambda: TransE(norm=1), "TransE", {"scoring_fct_norm": 1}),
    "distmult": (DistMult, "DistMult", {}),
    "complex": (ComplEx, "ComplEx", {}),
    "rotate": (lambda: RotatE(norm=2), "RotatE", {}),
}


@dataclass(frozen=True)
class Trained:
    """Vectors after training, and the triples that a second took."""

    tables: GraphTables
    speed: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="builtin", help="a folder of triples; builtin: Python's")
    parser.add_argument("--score", choices=sorted(SCORES), default="complex")
    parser.add_argument("--sampled", action="store_true", help="compare drawn entities alone")
    parser.add_argument("--negatives", type=int, default=64, help="K of --sampled")
    parser.add_argument("--width", type=int, default=128, help="real numbers of an entity")
    parser.add_argument("--batch", type=int, default=256, help="triples of an update")
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ranked", type=int, default=2000, help="validation triples")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--precision", default="auto", help="of plmctl; pykeen computes in fp32")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    keep_freed_memory(torch.device("cpu"))
    graph = read_graph(given.data)
    train: dict[str, Callable[..., Trained]] = {"plmctl": train_ours, "pykeen": train_theirs}
    try:
        import pykeen  # noqa: F401
    except ImportError:
        print("graph_embeddings.py compares with pykeen: pip install pykeen", file=sys.stderr)
        del train["pykeen"]
    speeds: dict[str, list[float]] = {name: [] for name in train}
    scores: dict[str, list[float]] = {name: [] for name in train}
    valid = graph.splits["valid"][: given.ranked]
    for number in range(given.rounds):
        for name in list(train) if number % 2 == 0 else list(reversed(train)):
            torch.manual_seed(number)
            done = train[name](graph, given, seed=number)
            mrr = rank(done.tables, valid, graph).summarize()["mrr"]
            speeds[name].append(done.speed)
            scores[name].append(mrr)
            print(f"round {number + 1} {name:7} {done.speed:8.0f} triples/s  MRR {mrr:.4f}")
    for name in train:
        print(f"{name:7} {np.median(speeds[name]):8.0f} triples/s  MRR {np.mean(scores[name]):.4f}")
    if len(train) == 2:
        ratios = np.array(speeds["plmctl"]) / np.array(speeds["pykeen"])
        print(f"plmctl is {np.median(ratios):.2f} times as fast ({ratios.min():.2f} to", end=" ")
        print(f"{ratios.max():.2f} in {given.rounds} rounds)")


def train_ours(graph: KnowledgeGraph, given: argparse.Namespace, seed: int) -> Trained:
    """Train by plmctl's parts, as `plmctl graph` does."""
    loss: GraphLoss = OneVsAll(grouped=True)
    if given.sampled:
        loss = SelfAdversarial(gamma=9.0, temperature=1.0, negatives=given.negatives)
    tables = make_tables(graph, given, seed)
    model, objective = Model(backbone=tables, heads={}), LinkPrediction(loss)
    batches = TripleBatches(graph, loss, batch_size=given.batch, seed=seed)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=given.lr, fused=True)
    precision = choose(given.precision, torch.device("cpu"))
    begin = time.perf_counter()
    for _ in range(given.epochs * batches.updates_per_epoch):
        batch = next(batches)[0]
        with precision.autocast():
            total = objective(model, batch).terms["link"].total
        optimizer.zero_grad()
        (total / objective.counts(batch)["link"]).backward()
        optimizer.step()
    seconds = time.perf_counter() - begin
    return Trained(tables, given.epochs * len(graph.splits["train"]) / seconds)


def train_theirs(graph: KnowledgeGraph, given: argparse.Namespace, seed: int) -> Trained:
    """Train by pykeen's own loops, and take its vectors."""
    from pykeen.losses import CrossEntropyLoss, NSSALoss
    from pykeen.models import model_resolver
    from pykeen.training import LCWATrainingLoop, SLCWATrainingLoop
    from pykeen.triples import CoreTriplesFactory

    _, name, settings = SCORES[given.score]
    factory = CoreTriplesFactory(
        torch.from_numpy(graph.splits["train"]),
        num_entities=len(graph.entities),
        num_relations=len(graph.relations),
        create_inverse_triples=not given.sampled,
    )
    loss = (
        NSSALoss(margin=9.0, adversarial_temperature=1.0) if given.sampled else CrossEntropyLoss()
    )
    halved = name in ("ComplEx", "RotatE")
    model = model_resolver.make(
        name,
        {
            "triples_factory": factory,
            "embedding_dim": given.width // 2 if halved else given.width,
            "loss": loss,
            "random_seed": seed,
            **settings,
        },
    )
    tables = make_tables(graph, given, seed)
    give_vectors(model, tables)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=given.lr)
    common = {"model": model, "triples_factory": factory, "optimizer": optimizer}
    if given.sampled:
        drawn = {"num_negs_per_pos": 2 * given.negatives}
        loop = SLCWATrainingLoop(**common, negative_sampler_kwargs=drawn)
    else:
        loop = LCWATrainingLoop(**common)
    updates = -(-len(graph.splits["train"]) // given.batch)
    begin = time.perf_counter()
    loop.train(
        factory,
        num_epochs=given.epochs,
        batch_size=given.batch if given.sampled else -(-_count_pairs(graph) // updates),
        use_tqdm=False,
        continue_training=True,  # from the first vectors that it was given
    )
    seconds = time.perf_counter() - begin
    take_vectors(model, tables)
    return Trained(tables, given.epochs * len(graph.splits["train"]) / seconds)


def _count_pairs(graph: KnowledgeGraph) -> int:
    """How many different (head, relation) and (tail, relation) the training triples have."""
    triples = graph.splits["train"]
    return sum(len(np.unique(triples[:, [known, RELATION]], axis=0)) for known in (HEAD, TAIL))


def make_tables(graph: KnowledgeGraph, given: argparse.Namespace, seed: int) -> GraphTables:
    """Tables with the first vectors of a seed."""
    return GraphTables(
        SCORES[given.score][0](),
        entities=len(graph.entities),
        relations=len(graph.relations),
        width=given.width,
        reciprocal=not given.sampled,
        generator=torch.Generator().manual_seed(seed),
    )


def give_vectors(model: Any, tables: GraphTables) -> None:
    """Our vectors to pykeen: its relation 2 n + 1 is the inverse of 2 n, a rotation is a complex
    number, and complex numbers stand as pairs.
    """
    relation = tables.relation.detach()
    if tables.reciprocal:
        relation = torch.stack(relation.chunk(2), dim=1).flatten(0, 1)
    if relation.shape[1] < tables.width:
        relation = torch.cat([relation.cos(), relation.sin()], dim=1)
    for kind, table in (("entity", tables.entity.detach()), ("relation", relation)):
        if tables.score.complex:
            table = torch.stack(table.chunk(2, dim=1), dim=2).flatten(1)
        weight = getattr(model, f"{kind}_representations")[0]._embeddings.weight
        weight.data.copy_(table.view(weight.shape))


def take_vectors(model: Any, tables: GraphTables) -> None:
    """pykeen's vectors in our tables."""
    entity, relation = (
        getattr(model, f"{kind}_representations")[0](indices=None).detach()
        for kind in ("entity", "relation")
    )
    if entity.is_complex():
        entity = torch.cat([entity.real, entity.imag], dim=1)
        turns = tables.relation.shape[1] < tables.width
        parts = [relation.angle()] if turns else [relation.real, relation.imag]
        relation = torch.cat(parts, dim=1)
    if tables.reciprocal:
        relation = torch.cat([relation[0::2], relation[1::2]])
    with torch.no_grad():
        tables.entity.copy_(entity)
        tables.relation.copy_(relation)


if __name__ == "__main__":
    main()
