"""The knowledge graph that settings name."""

from __future__ import annotations

from plmctl.config.schema import GraphData
from plmctl.core.terminal import counted
from plmctl.knowledge.graph import KnowledgeGraph
from plmctl.knowledge.triples import BUILTIN, read_graph


def open_graph(data: GraphData) -> KnowledgeGraph:
    """The graph that the settings name."""
    path = BUILTIN if data.path is None else data.path
    return read_graph(path, valid_share=data.valid_share, unseen=data.unseen)


def describe_graph(graph: KnowledgeGraph) -> list[str]:
    """Lines on the size of a graph, and on its held-out triples."""
    splits = ", ".join(f"{len(triples):,} {name}" for name, triples in graph.splits.items())
    sizes = f"{counted(len(graph.entities), 'entity')}, {counted(len(graph.relations), 'relation')}"
    held = len(graph.splits.get("valid", ()))
    valid = [f"valid: {counted(held, 'triple')}"] if held else []
    return [f"graph: {sizes}; triples: {splits}", *valid]
