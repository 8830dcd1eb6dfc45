"""Shaw's relative positions as a literal loop over queries and keys, in float64: masks, memory,
reversed rows, cached keys.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from plmctl.artifacts.assemble import build_model
from plmctl.attention.kernels.dense import Mask
from plmctl.attention.op import BoundOp
from plmctl.config.compose import compose
from plmctl.core.batch import Batch, Seq
from plmctl.models.capabilities import start_memory, start_reading
from plmctl.nn.cells.shaw_attention import ShawAttention
from plmctl.nn.env import Env, Streams
from plmctl.nn.positions import NoPosition
from plmctl.nn.relations import RelativeOp, make_relations
from plmctl.runs.contract.stand_in import TINY

W, H, D, B, CLIP = 8, 2, 3, 2, 2
EVEN = 4  # D of waves, which are pairs


def cell(values: bool = True, learned: bool = True) -> ShawAttention:
    torch.manual_seed(0)
    made = ShawAttention(
        width=W,
        num_heads=H,
        head_width=D if learned else EVEN,
        dropout=0.0,
        clip=CLIP,
        values=values,
        bias=False,
        learned=learned,
    )
    made = made.double().eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.normal_()
    return made


def literal(
    part: ShawAttention, x: Tensor, keys: Tensor, distances: Tensor, allowed: Tensor
) -> Tensor:
    """The formulas (3) and (4) of the paper, one query and one key at a time."""
    wide = part.head_width

    def heads(weight: Tensor, row: Tensor) -> Tensor:
        return (weight @ row).view(H, wide)

    def wave(number: int) -> Tensor:
        """NEZHA, eq. 2: a sine in each even column, its cosine behind it."""
        angles = [number / 10000 ** (2 * (n // 2) / wide) for n in range(wide)]
        values = [math.cos(x) if n % 2 else math.sin(x) for n, x in enumerate(angles)]
        return torch.tensor(values, dtype=x.dtype)

    a, b_ = (
        (None if table is None else list(table.weight))
        for table in (part.key_vectors, part.value_vectors)
    )
    if a is None:
        a = b_ = [wave(number) for number in range(2 * CLIP + 1)]
    wk, wv = part.kv.weight[: H * wide], part.kv.weight[H * wide :]
    y = torch.zeros(*x.shape[:2], H * wide, dtype=x.dtype)
    for b in range(x.shape[0]):
        for i in range(x.shape[1]):
            for h in range(H):
                q, scores, values = heads(part.q.weight, x[b, i])[h], [], []
                for j in range(keys.shape[1]):
                    if not allowed[b, i, j]:
                        continue
                    row = max(-CLIP, min(CLIP, -int(distances[b, i, j]))) + CLIP
                    key = heads(wk, keys[b, j])[h] + a[row]
                    scores.append(q @ key / math.sqrt(wide))
                    values.append(heads(wv, keys[b, j])[h])
                    if part.values and b_ is not None:
                        values[-1] = values[-1] + b_[row]
                if scores:
                    p = torch.stack(scores).softmax(0)
                    y[b, i, h * wide : (h + 1) * wide] = sum(
                        w * v for w, v in zip(p, values, strict=True)
                    )
    return y @ part.out.weight.T


def draw(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("values", [True, False])
@pytest.mark.parametrize("learned", [True, False])
def test_is_the_literal_loop(values: bool, learned: bool) -> None:
    part, x = cell(values, learned), draw(B, 6, W)
    allowed = torch.rand(B, 6, 6, generator=torch.Generator().manual_seed(2)) < 0.6
    allowed[0, 1] = False  # a query that sees nothing
    places = torch.arange(6)[None]
    op = BoundOp(Mask(allowed[:, None]), NoPosition(), places)
    y = part(Streams({"text": x}), Env({"text": op}))
    distances = (places[0, :, None] - places[0]).expand(B, -1, -1)
    wanted = literal(part, x, x, distances, allowed)
    close = 1e-10 if learned else 1e-6  # waves are computed in fp32
    torch.testing.assert_close(y, wanted, rtol=close, atol=close)
    gradients = [
        torch.autograd.grad(made.square().sum(), list(part.parameters())) for made in (y, wanted)
    ]
    torch.testing.assert_close(*gradients, rtol=10 * close, atol=10 * close)


@pytest.mark.parametrize("reversed", [None, [False, True]])
def test_memory_and_query_rows(reversed: list[bool] | None) -> None:
    part, memory, x = cell(), draw(B, 3, W), draw(B, 6, W)  # 4 tokens, 2 query rows
    asking = torch.tensor([[3, 1], [0, 2]])
    relations = make_relations(
        width=W,
        first=3,
        rows=4,
        like=x,
        positions=3 + asking,
        reversed=None if reversed is None else torch.tensor(reversed),
    )
    allowed = torch.rand(B, 6, 7, generator=torch.Generator().manual_seed(3)) < 0.7
    op = RelativeOp(
        Mask(allowed[:, None]), NoPosition(), torch.arange(4)[None], relations=relations, keys=4
    )
    y = part(Streams({"text": x, "memory": memory}), Env({"text": op}))
    places = 3 + torch.cat([torch.arange(4).expand(B, -1), asking], 1)
    distances = places[:, :, None] - torch.arange(7)
    if reversed is not None:
        distances = distances * torch.tensor([-1 if row else 1 for row in reversed])[:, None, None]
    wanted = literal(part, x, torch.cat([memory, x[:, :4]], 1), distances, allowed)
    torch.testing.assert_close(y, wanted, rtol=1e-10, atol=1e-10)


@torch.no_grad()
def test_a_cache_reads_on() -> None:
    words = ["size=tiny", "size.width=8", "size.num_heads=2", "data.path=x", "position=none"]
    words += ["model.stack.layout=of*2", "model.stack.cells.o.clip=3"]
    spec = compose("pretrain", "gpt2", words)
    made = build_model(spec, vocab_size=TINY.size, vocab=TINY, seed=0).double().eval()
    ids = torch.randint(5, TINY.size, (2, 9), generator=torch.Generator().manual_seed(4))

    def read(part: Tensor) -> Batch:
        return Batch(torch.arange(2), {"text": Seq(part, torch.tensor([part.shape[1]] * 2))})

    whole = made(read(ids)).last
    cache = made.backbone.fresh_cache(read(ids))
    parts = [made(read(part), cache).last for part in ids.split([4, 1, 3, 1], 1)]
    torch.testing.assert_close(torch.cat(parts, 1), whole, rtol=1e-10, atol=1e-10)


@torch.no_grad()
def test_segments_with_memory_are_one_long_row() -> None:
    words = ["size=tiny", "size.width=8", "size.num_heads=2", "format.max_length=4"]
    words += ["model.stack.layout=of*2", "model.memory=12", "data.path=x"]
    spec = compose("pretrain", "transformer_xl", words)
    made = build_model(spec, vocab_size=TINY.size, vocab=TINY, seed=0).double().eval()
    ids = torch.randint(5, TINY.size, (1, 12), generator=torch.Generator().manual_seed(5))

    def read(part: Tensor, goes_on: bool) -> Batch:
        seq = Seq(part, torch.tensor([part.shape[1]]), full=True)
        return Batch(torch.arange(1), {"text": seq}, values={"continues": torch.tensor([goes_on])})

    whole = made(read(ids, False)).last
    for start in (start_memory, start_reading):
        state, parts = start(made.backbone, 1, ids.device), []
        for number, part in enumerate(ids.split(4, 1)):
            hidden = made(read(part, number > 0), state)
            parts.append(hidden.last)
            state = hidden.state
        torch.testing.assert_close(torch.cat(parts, 1), whole, rtol=1e-10, atol=1e-10)
