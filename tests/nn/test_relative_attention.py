"""Relative attention as a literal loop over queries and keys, in float64: memory, query rows,
segments, reversed rows.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from plmctl.attention.kernels.dense import Mask
from plmctl.attention.op import BoundOp
from plmctl.core.errors import ConfigError
from plmctl.nn.cache import Cache
from plmctl.nn.cells.relative_attention import RelativeAttention
from plmctl.nn.env import Env, Streams
from plmctl.nn.positions import NoPosition
from plmctl.nn.relations import Relations, RelativeOp, compute_sinusoids, make_relations
from plmctl.nn.residual import Block

W, H, D, B = 8, 2, 3, 2


def cell(segments: bool = True) -> RelativeAttention:
    torch.manual_seed(0)
    made = (
        RelativeAttention(width=W, num_heads=H, head_width=D, dropout=0.0, segments=segments)
        .double()
        .eval()
    )
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.normal_()
    return made


def run(
    part: RelativeAttention | Block,
    x: Tensor,
    mask: Tensor | None,
    *,
    relations: Relations | None = None,
    memory: Tensor | None = None,
    cache: Cache | None = None,
    keys: int | None = None,
) -> Tensor:
    plan, positions = Mask(mask), torch.arange(x.shape[1])[None]
    op = BoundOp(plan, NoPosition(), positions)
    if relations is not None:
        op = RelativeOp(plan, NoPosition(), positions, relations=relations, keys=keys)
    streams = Streams({"text": x} if memory is None else {"text": x, "memory": memory})
    found = part(streams, Env({"text": op}, cache=cache))
    return found["text"] if isinstance(part, Block) else found


def literal(
    part: RelativeAttention,
    x: Tensor,
    keys: Tensor,
    places: Tensor,
    allowed: Tensor,
    sign: list[int],
    apart: Tensor | None,
) -> Tensor:
    """The formula of the sheet, one query and one key at a time; `places [B, Tq]` of queries,
    keys stand at 0, 1, ...
    """

    def heads(weight: Tensor, row: Tensor) -> Tensor:
        return (weight @ row).view(H, D)

    wk, wv = part.kv.weight[: H * D], part.kv.weight[H * D :]
    found = torch.zeros(*x.shape[:2], H * D, dtype=x.dtype)
    for b in range(x.shape[0]):
        for i in range(x.shape[1]):
            q = heads(part.q.weight, x[b, i])
            for h in range(H):
                scores, values = [], []
                for j in range(keys.shape[1]):
                    if not allowed[b, i, j]:
                        continue
                    distance = sign[b] * (int(places[b, i]) - j)
                    wave = [math.sin(distance / 10000 ** (2 * n / W)) for n in range(W // 2)]
                    wave += [math.cos(distance / 10000 ** (2 * n / W)) for n in range(W // 2)]
                    r = heads(part.place.weight, torch.tensor(wave, dtype=x.dtype))[h]
                    score = (q[h] + part.content_bias[h, 0]) @ heads(wk, keys[b, j])[h] + (
                        q[h] + part.place_bias[h, 0]
                    ) @ r
                    if (
                        apart is not None
                        and part.segments is not None
                        and part.segment_bias is not None
                    ):
                        score = (
                            score
                            + (q[h] + part.segment_bias[h, 0])
                            @ part.segments[int(apart[b, i, j]), h, 0]
                        )
                    scores.append(score / math.sqrt(D))
                    values.append(heads(wv, keys[b, j])[h])
                if scores:
                    weights = torch.stack(scores).softmax(0)
                    found[b, i, h * D : (h + 1) * D] = sum(
                        w * v for w, v in zip(weights, values, strict=True)
                    )
    return found @ part.out.weight.T


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("memory", [0, 3])
@pytest.mark.parametrize("asked", [False, True])
@pytest.mark.parametrize("reversed", [None, [False, True]])
@pytest.mark.parametrize("segments", [False, True])
def test_is_the_literal_loop(
    memory: int, asked: bool, reversed: list[bool] | None, segments: bool
) -> None:
    part, length = cell(segments), 4
    x, mem = random(B, length + 2 * asked, W), random(B, memory, W)
    places = torch.tensor([[3, 1], [0, 2]]) if asked else torch.zeros(B, 0, dtype=torch.long)
    where = torch.cat([torch.arange(length).expand(B, -1), places], 1) + memory
    allowed = torch.rand(B, x.shape[1], memory + length) < 0.6
    allowed[0, 1] = False  # a query that sees nothing
    apart = torch.rand(B, x.shape[1], memory + length) < 0.5 if segments else None
    made = make_relations(
        width=W,
        first=memory,
        rows=length,
        like=x,
        positions=memory + places if asked else None,
        reversed=None if reversed is None else torch.tensor(reversed),
        apart=None if apart is None else apart[:, None],
    )
    sign = [-1 if row else 1 for row in reversed or [False] * B]
    wanted = literal(part, x, torch.cat([mem, x[:, :length]], 1), where, allowed, sign, apart)
    found = run(
        part, x, allowed[:, None], memory=mem if memory else None, keys=length, relations=made
    )
    torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-10)


def test_distances_are_of_the_given_places() -> None:
    """Rows padded in front behind memory: places of keys are named one by one."""
    part, x, mem = cell(False), random(1, 3, W), random(1, 2, W)
    keys = torch.tensor([[0, 1, 1, 2, 3]])  # one padding token stands between memory and text
    made = make_relations(
        width=W, first=2, rows=3, like=x, positions=keys[:, 2:], key_positions=keys
    )
    allowed = torch.ones(1, 1, 3, 5, dtype=torch.bool)
    allowed[..., 2] = False
    padded = run(part, x, allowed, memory=mem, relations=made)[:, 1:]
    plain = make_relations(width=W, first=2, rows=2, like=x)
    everything = torch.ones(1, 1, 2, 4, dtype=torch.bool)
    alone = run(part, x[:, 1:], everything, memory=mem, relations=plain)
    torch.testing.assert_close(padded, alone, rtol=1e-12, atol=1e-12)


@torch.no_grad()
def test_a_cache_reads_on_behind_memory() -> None:
    part, x, mem = cell(False), random(B, 5, W), random(B, 3, W)
    causal = (torch.arange(8) <= torch.arange(5)[:, None] + 3)[None, None]
    every = make_relations(width=W, first=3, rows=5, like=x)
    whole = run(part, x, causal, memory=mem, relations=every)
    cache, found = Cache.of(1), []
    for start, end in ((0, 2), (2, 3), (3, 5)):
        new = make_relations(width=W, first=3 + start, rows=end - start, like=x)
        mask = causal[:, :, start:end, : 3 + end]
        found.append(run(part, x[:, start:end], mask, memory=mem, cache=cache, relations=new))
    torch.testing.assert_close(torch.cat(found, 1), whole, rtol=1e-12, atol=1e-12)


def test_memory_goes_through_the_norm_of_its_block() -> None:
    """A norm before the cell is for all keys (kimiyoung/transformer-xl, pre_lnorm)."""
    norm = nn.LayerNorm(W).double()
    with torch.no_grad():
        norm.weight.normal_()
    block, x, mem = Block(cell=cell(False), norm_in=norm), random(B, 3, W), random(B, 2, W)
    made = make_relations(width=W, first=2, rows=3, like=x)
    mask = torch.ones(1, 1, 3, 5, dtype=torch.bool)
    wanted = x + run(block.cell, norm(x), mask, memory=norm(mem), relations=made)
    torch.testing.assert_close(run(block, x, mask, memory=mem, relations=made), wanted)


def test_no_table_of_queries_by_keys_by_width() -> None:
    """What a layer keeps for its backward pass grows with queries times distances, not with
    width on top.
    """
    length, width = 64, 64
    part = RelativeAttention(width=width, num_heads=1, dropout=0.0).train()
    x = torch.randn(1, length, width, requires_grad=True)
    sizes: list[int] = []
    with torch.autograd.graph.saved_tensors_hooks(
        lambda t: sizes.append(t.numel()) or t, lambda t: t
    ):
        run(part, x, None, relations=make_relations(width=width, first=0, rows=length, like=x))
    assert max(sizes) <= 2 * length * length


def test_sinusoids_of_opposite_distances() -> None:
    waves = compute_sinusoids(torch.tensor([3, -3]), W)
    assert torch.equal(waves[0, W // 2 :], waves[1, W // 2 :])
    assert torch.equal(waves[0, : W // 2], -waves[1, : W // 2])


def test_a_model_without_distances_is_refused() -> None:
    with pytest.raises(ConfigError, match="model=xlnet"):
        run(cell(), random(1, 2, W), None)
    with pytest.raises(ConfigError, match="must divide"):
        RelativeAttention(width=8, num_heads=3, dropout=0.0)
    with pytest.raises(ConfigError, match="must be even"):
        RelativeAttention(width=9, num_heads=3, dropout=0.0)
