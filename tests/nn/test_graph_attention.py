"""Graph attention against its equations as a loop, and the links that a row gives."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from plmctl.artifacts.assemble import build_model
from plmctl.attention.kernels.dense import Dense
from plmctl.attention.op import AttentionOp
from plmctl.attention.patterns.base import Full
from plmctl.attention.patterns.causal import Causal
from plmctl.attention.patterns.linked import Linked
from plmctl.config.compose import compose
from plmctl.core.batch import Seq
from plmctl.core.errors import ConfigError
from plmctl.inputs.known_text import describe_links
from plmctl.models.base import list_parts
from plmctl.nn.cells.graph_attention import GraphAttention
from plmctl.nn.env import Env, Streams
from plmctl.runs.contract.contract import check_contract

T, W, HEADS = 7, 8, 2


def seq_of(*, document: bool = False) -> Seq:
    """Two rows of 7 and 5 tokens: links 0-3-5 and 1-2, and by another tag 2-3."""
    edge = torch.tensor([[1, 2, 2, 1, 0, 1, 0], [4, 0, 4, 0, 0, 4, 4]])
    other = torch.tensor([[0, 0, 9, 9, 0, 0, 0], [0] * 7])
    tracks = {"edge": edge, "other": other}
    if document:
        tracks["document"] = torch.tensor([[0, 0, 0, 0, 1, 1, 1], [0] * 5 + [-1] * 2])
    return Seq(torch.arange(14).view(2, T), torch.tensor([7, 5]), tracks)


def linked(row: int, tags: list[str]) -> list[set[int]]:
    groups = {"edge": [[{0, 3, 5}, {1, 2}], [{0, 2}]], "other": [[{2, 3}], []]}
    return [
        {q}.union(*(group for tag in tags for group in groups[tag][row] if q in group))
        for q in range((7, 5)[row])
    ]


@pytest.mark.parametrize("tags", [["edge"], ["edge", "other"]])
def test_links(tags: list[str]) -> None:
    allowed = Linked(tags=tags).dense(seq_of())
    assert allowed is not None
    for row in range(2):
        for q, seen in enumerate(linked(row, tags)):
            found = set(allowed[row, 0, q, : (7, 5)[row]].nonzero()[:, 0].tolist())
            assert found == seen
    # without the tag a token sees itself
    bare = Linked(tags=["unheard"]).dense(seq_of())
    assert torch.equal(bare[0, 0], torch.eye(T, dtype=torch.bool))


def cell_of(**settings: float) -> GraphAttention:
    torch.manual_seed(0)
    structure = Linked(tags=["edge"])
    cell = GraphAttention(
        width=W, num_heads=HEADS, structure=structure, **{"dropout": 0.0, **settings}
    )
    return cell.double()


def run(cell: GraphAttention, seq: Seq, x: torch.Tensor) -> torch.Tensor:
    op = AttentionOp(Full(), None, Dense())  # type: ignore[arg-type]
    return cell(Streams({"text": x}), Env({"text": op}, seq=seq))  # type: ignore[dict-item]


@pytest.mark.parametrize("document", [False, True])
def test_equations_as_a_loop(document: bool) -> None:
    cell, seq = cell_of(), seq_of(document=document)
    x = torch.randn(2, T, W, dtype=torch.double, generator=torch.Generator().manual_seed(1))
    found = run(cell, seq, x)
    for row in range(2):
        z = x[row] @ cell.values.weight.T
        for i, seen in enumerate(linked(row, ["edge"])):
            if document:
                seen = {j for j in seen if (i < 4) == (j < 4) or row}
            for head in range(HEADS):
                own = z[:, head * W // HEADS : (head + 1) * W // HEADS]
                scores = {}
                for j in sorted(seen):
                    e = cell.ask.weight[head] @ own[i] + cell.answer.weight[head] @ own[j]
                    scores[j] = math.exp(e.item() if e > 0 else 0.2 * e.item())
                total = sum(scores.values())
                h = sum(score / total * own[j] for j, score in scores.items())
                wanted = torch.where(h > 0, h, h.exp() - 1)
                columns = slice(head * W // HEADS, (head + 1) * W // HEADS)
                assert_close(found[row, i, columns], wanted)
    assert torch.isfinite(found).all()


def test_dropout_is_on_the_weights_in_training_alone() -> None:
    cell, seq = cell_of(dropout=0.5), seq_of()
    x = torch.randn(2, T, W, dtype=torch.double)
    assert (run(cell.train(), seq, x) - run(cell, seq, x)).abs().max() > 0
    assert torch.equal(run(cell.eval(), seq, x), run(cell, seq, x))


def test_in_a_model() -> None:
    """Beside attention over everything; the loaded tags are among what the model reads."""
    words = ["size=tiny", "model.stack.layout=anf*2", "data.tags=[edge]"]
    config = compose("pretrain", "bert", [*words, "data.path=a.jsonl"])
    check_contract(config)
    model = build_model(config, vocab_size=50, seed=0).eval()
    uses = frozenset().union(*(getattr(part, "uses", ()) for part in list_parts(model.backbone)))
    assert "tracks.edge" in uses
    with pytest.raises(ConfigError, match="Causal allows less"):
        model.backbone.set_pattern(Causal())
    with pytest.raises(ConfigError, match=r"such as \[edge\]"):
        Linked(tags=[])


def test_a_graph_without_edges_is_said() -> None:
    """Of data without marks every token would see itself alone, and nothing would tell."""
    cell = GraphAttention(
        width=8, num_heads=2, structure=Linked(tags=["head", "edge"]), dropout=0.0
    )
    model: Any = nn.Sequential(nn.Linear(8, 8), cell)
    (line,) = describe_links(model, lambda name: False)
    assert line.startswith("no edges: no token of this text has a number in edge, head")
    assert "data.tags=[edge, head]" in line
    assert describe_links(model, lambda name: name == "head") == []
    plain: Any = nn.Sequential(nn.Linear(8, 8))
    assert describe_links(plain, lambda name: False) == []
