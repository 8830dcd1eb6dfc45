"""What is said of a knowledge graph."""

from plmctl.config.schema import GraphData
from plmctl.inputs.graphs import describe_graph, open_graph


def test_held_out_triples_have_a_line_of_their_own() -> None:
    graph = open_graph(GraphData(path="builtin"))
    size, *held = describe_graph(graph)
    assert size.startswith("graph: ")
    number = len(graph.splits["valid"])  # differs by a few with what else a process imports
    assert 100 < number < 150
    assert held == [f"valid: {number} triples"]
    assert len(describe_graph(open_graph(GraphData(path="builtin", valid_share=0.0)))) == 1
