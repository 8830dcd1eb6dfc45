"""What is said of a knowledge graph."""

from plmctl.config.schema import GraphData
from plmctl.inputs.graphs import describe_graph, open_graph


def test_held_out_triples_have_a_line_of_their_own() -> None:
    size, *held = describe_graph(open_graph(GraphData(path="builtin")))
    assert size.startswith("graph: ")
    assert held == ["valid: 123 triples"]
    assert len(describe_graph(open_graph(GraphData(path="builtin", valid_share=0.0)))) == 1
