"""`plmctl eval checkpoint=<vectors>`: ranks of a split by vectors that `plmctl graph` wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from plmctl.config.build import build
from plmctl.core.errors import ConfigError, DataError
from plmctl.core.spelling import spell_setting
from plmctl.core.values import Count
from plmctl.graph.ranks import rank
from plmctl.graph.tables import GraphTables
from plmctl.knowledge.graph import SIDES, KnowledgeGraph, Side
from plmctl.knowledge.triples import BUILTIN, read_graph
from plmctl.knowledge.vectors import AGAIN, RECORD, GraphVectors, match_names, read_vectors
from plmctl.storage.atomic import refuse_existing, write_json
from plmctl.storage.paths import refuse_ending
from plmctl.storage.reading import fit_stored
from plmctl.use.asked_task import Destination
from plmctl.use.predict import ScoreTable, Told, tell_numbers

SPLITS = {"dev": "valid", "validation": "valid"}  # the words of other tasks

FEW = 30  # triples; one more moves the mean of fewer by several hundredths


def evaluate_vectors(
    folder: Path,
    split: str,
    *,
    path: str | Sequence[str] | None,
    out: Destination | None,
    device: torch.device,
    batch_size: int,
    plugins: Sequence[str] = (),
) -> ScoreTable:
    """Rank the answers of a split by the vectors of a folder.

    Args:
        path: The graph; None: the graph that the vectors were trained on.
        out: The file of the scores; None: no file.
    """
    if out is not None:
        refuse_ending(out.path, [".json"], "the scores of the graph")
        refuse_existing(out.path, out.overwrite)
    vectors = read_vectors(folder)
    graph = _open_graph(path, vectors, folder)
    asked_split, split = split, SPLITS.get(split, split)
    if split not in graph.splits:
        known = ", ".join(graph.splits)
        other = next((name for name in graph.splits if name != "train"), "train")
        fix = spell_setting("split", other)
        raise ConfigError("split", asked_split, f"one that the graph has: {known}", fix=fix)
    graph, triples, lost = align(graph, split, vectors)
    tables = load_tables(vectors, plugins, folder).to(device)
    asked = vectors.record.get("sides", list(SIDES))
    sides = fit_stored(asked, list[Side], file=folder / RECORD, fix=AGAIN) or SIDES
    ranks = rank(tables, triples, graph, sides=sides, batch_size=batch_size)
    scores = ranks.tabulate(graph.kinds())
    extra: dict[str, Any] = {"checkpoint": str(folder), "triples": len(triples)}
    extra |= describe_sides(sides)
    extra |= remark_on_few(len(triples))
    if unknown := graph.describe_unknown():
        extra["known answers"] = Told(unknown)
    if lost:
        extra["left out"] = Told(f"{lost:,} triples with names that have no vector", lost)
    if out is not None:
        write_json(out.path, {**tell_numbers(extra), "metrics": {split: scores}})
    return tabulate_ranks("link prediction", {split: scores}, extra)


def remark_on_few(triples: int) -> dict[str, Told]:
    """A remark on the ranks of so few triples; empty for enough."""
    if triples >= FEW:
        return {}
    several = f"of {triples} triples" if triples > 1 else "of one triple"
    return {"remark": Told(f"ranks {several} say little: those of others may be far from them")}


def describe_sides(sides: Sequence[Side]) -> dict[str, Told]:
    """A remark on vectors that were trained to answer one side; empty for both."""
    if {*sides} == {*SIDES}:
        return {}
    (side,) = {*sides}
    return {"sides": Told(f"{side}s alone are ranked, as they alone were trained: sides=[{side}]")}


def tabulate_ranks(
    title: str, metrics: Mapping[str, Mapping[str, float]], extra: Mapping[str, Any]
) -> ScoreTable:
    """Scores of splits, and how ties count."""
    return ScoreTable(title, metrics, {**extra, "ties": "averaged"})


def _open_graph(
    path: str | Sequence[str] | None, vectors: GraphVectors, folder: Path
) -> KnowledgeGraph:
    """The graph at a path, else that of the vectors' own run."""
    own = dict(vectors.record.get("data") or {})
    path = path or own.get("path") or BUILTIN
    if not isinstance(path, str):
        raise ConfigError(
            "data.path", list(path), "one graph", fix=spell_setting("data.path", path[0])
        )
    share = fit_stored(own.get("valid_share", 0.05), float, file=folder / RECORD, fix=AGAIN)
    return read_graph(path, valid_share=share, unseen=own.get("unseen", "keep"))


def align(
    graph: KnowledgeGraph, split: str, vectors: GraphVectors
) -> tuple[KnowledgeGraph, np.ndarray, int]:
    """The graph by the numbers of the vectors, the triples of one split, and how many of these
    name what has no vector.
    """
    entity = match_names(graph.entities, vectors.entities)
    relation = match_names(graph.relations, vectors.relations)
    splits: dict[str, np.ndarray] = {}
    lost: dict[str, int] = {}
    for name, triples in graph.splits.items():
        head, tail = entity[triples[:, 0]], entity[triples[:, 2]]
        rows = np.stack([head, relation[triples[:, 1]], tail], axis=1)
        known = (rows >= 0).all(1)
        splits[name], lost[name] = rows[known], int((~known).sum())
    if not len(splits[split]):
        wanted: Sequence[str] = graph.entities[:1]
        what = f"no triple of {split} has vectors; the graph has names such as {wanted[0]!r}"
        raise DataError(what, file=None, fix="data.path=<the graph that the vectors were made of>")
    own = KnowledgeGraph(vectors.entities, vectors.relations, splits)
    return own, splits[split], lost[split]


def load_tables(
    vectors: GraphVectors, plugins: Sequence[str] = (), folder: Path | None = None
) -> GraphTables:
    """The tables of vectors, with their score."""
    file, record = (folder or Path()) / RECORD, vectors.record
    if "score" not in record:
        raise DataError("there is no score in it", file=file, fix=AGAIN)
    width = fit_stored(record.get("width", vectors.entity.shape[1]), Count, file=file, fix=AGAIN)
    tables = GraphTables(
        build(record["score"], plugins=plugins, path="graph_score"),
        entities=len(vectors.entities),
        relations=len(vectors.relations),
        width=width,
        reciprocal=vectors.inverse is not None,
    )
    relation = [vectors.relation] + ([] if vectors.inverse is None else [vectors.inverse])
    found = {"entity": vectors.entity, "relation": np.concatenate(relation)}
    with torch.no_grad():
        for name, table in found.items():
            own: torch.Tensor = getattr(tables, name)
            if own.shape != table.shape:
                what = f"{name}: {list(table.shape)}, must be {list(own.shape)}"
                raise DataError(what, file=file.parent, fix=AGAIN)
            own.copy_(torch.from_numpy(np.ascontiguousarray(table)))
    return tables.requires_grad_(False)
