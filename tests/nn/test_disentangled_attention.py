"""Disentangled attention as a literal loop over queries, keys and heads, in float64, with every
kind of distance, mask and kernel; buckets as the published numbers.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from plmctl.attention.kernels.banded import Banded
from plmctl.attention.kernels.dense import Mask
from plmctl.attention.op import BoundOp
from plmctl.attention.patterns.base import Full
from plmctl.core.batch import Seq
from plmctl.core.errors import ConfigError
from plmctl.nn import distance_scores
from plmctl.nn.cells.disentangled_attention import DisentangledAttention
from plmctl.nn.disentangled import Disentangled
from plmctl.nn.distance_scores import score_distances
from plmctl.nn.env import Env, Streams
from plmctl.nn.norm import layer_norm

W, H, D, B = 8, 2, 4, 2
KINDS: list[dict[str, Any]] = [
    {"cell": {}, "position": {"max_distance": 4}},  # DeBERTa 1: rows longer than the table
    {"cell": {"key_bias": False}, "position": {"max_distance": 16}},
    {"cell": {"shared": True}, "position": {"buckets": 4, "max_distance": 9, "norm": True}},
    {"cell": {"terms": ["c2p"]}, "position": {"buckets": 5, "max_distance": 7}},
    {"cell": {"terms": ["p2c"], "shared": True}, "position": {"max_distance": 6}},
    {"cell": {"terms": []}, "position": {"max_distance": 6}},
]


def make(kind: dict[str, Any]) -> tuple[DisentangledAttention, Disentangled]:
    torch.manual_seed(0)
    settings = dict(kind["position"])
    if settings.pop("norm", False):
        settings["norm"] = partial(layer_norm, eps=1e-7)
    cell = DisentangledAttention(width=W, num_heads=H, dropout=0.0, **kind["cell"]).double()
    position = Disentangled(width=W, dropout=0.0, **settings).double()
    with torch.no_grad():
        for parameter in [*cell.parameters(), *position.parameters()]:
            parameter.normal_()
    return cell.eval(), position.eval()


def literal(
    cell: DisentangledAttention,
    position: Disentangled,
    x: Tensor,
    distance: Tensor,
    allowed: Tensor,
    content: Tensor,
) -> Tensor:
    """Eq. 4 of the paper, one query and one key at a time; p2c by the distance i - j."""
    table, span = position.norm(position.vectors.weight), position.span

    def b(steps: int) -> int:
        if position.buckets is None or abs(steps) <= position.buckets // 2:
            return steps
        middle = position.buckets // 2
        far = math.log(abs(steps) / middle) / math.log((position.max_distance - 1) / middle)
        return int(math.copysign(middle + math.ceil(far * (middle - 1) - 1e-9), steps))

    to_key = cell.k if cell.shared else cell.place_key
    to_query = cell.q if cell.shared else cell.place_query
    rows = []
    for n in range(len(x)):
        for i in range(x.shape[1]):
            heads = []
            for h in range(H):
                own, scores = slice(h * D, (h + 1) * D), []
                for j in range(x.shape[1]):
                    delta = min(max(b(int(distance[n, i, j])) + span, 0), 2 * span - 1)
                    q, k = cell.q(x[n, i])[own], cell.k(content[n, j])[own]
                    s = q @ k
                    if "c2p" in cell.terms:
                        s = s + q @ to_key(table[delta])[own]
                    if "p2c" in cell.terms:
                        s = s + k @ to_query(table[delta])[own]
                    s = s / math.sqrt(D * (1 + len(cell.terms)))
                    scores.append(s if allowed[n, i, j] else s - torch.inf)
                seen = bool(allowed[n, i].any())
                p = torch.stack(scores).softmax(0) if seen else x.new_zeros(x.shape[1])
                heads.append(p @ cell.v(content[n])[:, own])
            rows.append(torch.cat(heads))
    return cell.out(torch.stack(rows).view(len(x), -1, W))


def draw(*shape: int, seed: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("block", [32, 3], ids=["one block", "blocks"])
def test_is_the_literal_loop(kind: Any, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distance_scores, "BLOCK", block)
    (cell, position), x = make(kind), draw(B, 7, W)
    allowed = torch.rand(B, 7, 7, generator=torch.Generator().manual_seed(2)) < 0.6
    allowed[0, 1] = False  # a query that sees nothing
    allowed[:, 2, 2] = True
    places = torch.arange(7)[None]
    seq = Seq(torch.zeros(B, 7, dtype=torch.int64), torch.tensor([7] * B))
    op = BoundOp(Mask(allowed[:, None]), position, places)
    y = cell(Streams({"text": x}), Env({"text": op}, seq=seq))
    distance = (places.T - places).expand(B, -1, -1)
    wanted = literal(cell, position, x, distance, allowed, x)
    torch.testing.assert_close(y, wanted, rtol=1e-12, atol=1e-12)
    weights = [*cell.parameters(), *position.parameters()]
    found, expected = (
        torch.autograd.grad(made.square().sum(), weights, allow_unused=True) for made in (y, wanted)
    )
    for mine, theirs in zip(found, expected, strict=True):
        assert (mine is None) == (theirs is None)
        if mine is not None:
            torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("kind", KINDS[1:3])
def test_content_and_other_positions(kind: Any) -> None:
    """Queries of one stream read another one, and positions may have gaps or be of packed rows."""
    (cell, position), x, content = make(kind), draw(B, 6, W), draw(B, 6, W, seed=3)
    allowed = torch.ones(B, 6, 6, dtype=torch.bool)
    for places in (
        torch.tensor([[0, 1, 2, 3, 4, 5], [0, 1, 2, 0, 1, 2]]),
        torch.tensor([[4, 0, 2, 9, 3, 1]]),
    ):
        tracks = {"position": places.expand(B, -1)}
        seq = Seq(torch.zeros(B, 6, dtype=torch.int64), torch.tensor([6] * B), tracks)
        env = Env({"text": BoundOp(Mask(allowed[:, None]), position, places)}, seq=seq)
        y = cell(Streams({"text": x, "content": content}), env)
        distance = (places[:, :, None] - places[:, None]).expand(B, -1, -1)
        wanted = literal(cell, position, x, distance, allowed, content)
        torch.testing.assert_close(y, wanted, rtol=1e-12, atol=1e-12)


def test_packed_rows_and_any_kernel() -> None:
    """Documents side by side are read as if each stood alone, by the dense and by other kernels."""
    (cell, position), x = make(KINDS[2]), draw(1, 10, W)
    document = torch.tensor([[0] * 4 + [1] * 6])
    places = torch.tensor([[*range(4), *range(6)]])
    tracks = {"document": document, "position": places}
    seq = Seq(torch.zeros(1, 10, dtype=torch.int64), torch.tensor([10]), tracks)
    apart = (document[0, :, None] == document[0])[None, None]
    plans = [Mask(apart), Banded().plan(Full(), seq)]
    alone = []
    for part in (slice(0, 4), slice(4, 10)):
        length = part.stop - part.start
        own = Seq(torch.zeros(1, length, dtype=torch.int64), torch.tensor([length]))
        op = BoundOp(Mask(None), position, torch.arange(length)[None])
        alone.append(cell(Streams({"text": x[:, part]}), Env({"text": op}, seq=own)))
    y = cell(Streams({"text": x}), Env({"text": BoundOp(plans[0], position, places)}, seq=seq))
    torch.testing.assert_close(y, torch.cat(alone, 1))
    full = seq.with_tracks(document=torch.zeros_like(document), position=torch.arange(10)[None])
    given = [
        cell(
            Streams({"text": x}),
            Env({"text": BoundOp(plan, position, torch.arange(10)[None])}, seq=full),
        )
        for plan in (Mask(None), plans[1])
    ]
    torch.testing.assert_close(given[0], given[1])


@pytest.mark.parametrize("length", [1, 5, 64, 65, 130])
@pytest.mark.parametrize("terms", [(0, 1), (0,), (1,)])
def test_scores_are_a_gather(length: int, terms: tuple[int, ...]) -> None:
    sides = [draw(2, 3, length, 4, seed=n) for n in range(2)]
    vectors = [draw(3, 2 * length - 1, 4, seed=2 + n) for n in range(2)]
    weights = [x.requires_grad_() for n in terms for x in (sides[n], vectors[n])]
    places = length - 1 - torch.arange(length)[:, None] + torch.arange(length)
    rows = [places, places.T]
    each = [
        (x @ v.transpose(-1, -2)).gather(-1, row.expand(2, 3, -1, -1))
        for x, v, row in zip(sides, vectors, rows, strict=True)
    ]
    wanted = torch.stack([(each[0], each[1].transpose(-1, -2))[n] for n in terms]).sum(0)
    own = [vectors[n] if n in terms else None for n in range(2)]
    found, grad = score_distances(sides[0], own[0], sides[1], own[1]), draw(2, 3, length, length)
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(
        torch.autograd.grad(found, weights, grad), torch.autograd.grad(wanted, weights, grad)
    )


def test_buckets_are_the_published_ones() -> None:
    position = Disentangled(width=2, buckets=256, max_distance=512)
    distances = torch.tensor([-600, -511, -129, -128, 0, 5, 128, 129, 200, 300, 511, 600])
    buckets = position.bucket(distances)
    assert buckets.tolist()[1:-1] == [-255, -129, -128, 0, 5, 128, 129, 169, 207, 255]
    assert position.number(distances).tolist()[:2] == [0, 1]
    assert int(position.number(distances).max()) == 511


def test_wrong_settings_are_named() -> None:
    with pytest.raises(ConfigError, match="c2p, p2c"):
        DisentangledAttention(width=W, num_heads=H, dropout=0.0, terms=["p2p"])
    with pytest.raises(ConfigError, match="max_distance"):
        Disentangled(width=W, buckets=8, max_distance=4)
