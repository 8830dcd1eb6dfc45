"""Attention with learned and dynamic spans (Sukhbaatar et al., 2019, sec. 2): a double loop over
queries and keys, work that is left out, memory, padding, documents, token by token, bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from plmctl.attention.kernels.dense import Mask
from plmctl.attention.op import BoundOp
from plmctl.core.batch import Seq
from plmctl.core.errors import ConfigError
from plmctl.nn.cache import Cache
from plmctl.nn.cells import span_attention
from plmctl.nn.cells.base import RowSize
from plmctl.nn.cells.span_attention import SpanAttention
from plmctl.nn.distances import LearnedDistances
from plmctl.nn.env import Env, Streams
from plmctl.nn.positions import ALiBi, NoPosition, Position, Rotary
from plmctl.nn.spans import AdaptiveSpan, DynamicSpan
from tests.marks import mark_slow

B, H, D, RAMP = 2, 3, 4, 4
W = H * D


def make_cell(shares: Sequence[float] | None, span: int = 20, **settings: Any) -> SpanAttention:
    torch.manual_seed(0)
    cell = SpanAttention(
        width=W,
        num_heads=H,
        dropout=0.0,
        span=span,
        ramp=RAMP,
        **{"adaptive": shares is not None, **settings},
    )
    if shares is not None:
        cell.soft.share.data = torch.tensor(shares)
    return cell.double()


def make_dynamic(span: int = 20, spread: float = 1.0, **settings: Any) -> SpanAttention:
    """`spread`: how much z differs from token to token."""
    cell = make_cell(None, span, **{"adaptive": True, "dynamic": True, "start": 0.3, **settings})
    assert isinstance(cell.soft, DynamicSpan)
    cell.soft.start(torch.Generator())
    torch.manual_seed(2)
    cell.soft.unit.weight.data.normal_(std=spread / W**0.5)
    return cell


def make_position(kind: type[Position]) -> Position:
    torch.manual_seed(1)
    if kind is LearnedDistances:
        position: Position = LearnedDistances(width=W, num_heads=H, longest=20)
        torch.nn.init.normal_(position.vectors)  # type: ignore[arg-type]
        return position.double()
    return ALiBi(num_heads=H) if kind is ALiBi else kind()


def make_env(position: Position, length: int, **more: Any) -> Env:
    seq = Seq(torch.zeros(B, length, dtype=torch.long), torch.full((B,), length), full=True)
    op = BoundOp(Mask(None), position, torch.arange(length)[None])
    return Env({"text": op}, **{"seq": seq, **more})


def draw(*shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()


def find_span(cell: SpanAttention, x: Tensor, head: int) -> Tensor | None:
    """z of a token x; None: no mask."""
    if isinstance(cell.soft, DynamicSpan):
        v, b = cell.soft.unit.weight[head], cell.soft.unit.bias[head]
        return cell.facts.longest / (1 + (-(v @ x) - b).exp())
    return cell.soft.share[head] * cell.facts.longest if cell.soft.share.requires_grad else None


def loop(
    cell: SpanAttention,
    position: Position,
    x: Tensor,
    memory: Tensor,
    filled: Sequence[int],
    apart: Mapping[tuple[int, int], int] = {},
) -> Tensor:
    """One query, one key, one number after the other; `apart`: {(row, place in x): document}."""
    rows = []
    front = memory.shape[1]
    for b in range(x.shape[0]):
        seen, y = torch.cat([memory[b], x[b]]), []
        for i in range(x.shape[1]):
            heads = []
            for h in range(H):
                own = slice(h * D, (h + 1) * D)
                values = slice((H + h) * D, (H + h + 1) * D)
                q = cell.q.weight[own] @ x[b, i]
                top, bottom = torch.zeros(D, dtype=x.dtype), torch.zeros((), dtype=x.dtype)
                for j in range(front + i):
                    distance = front + i - j
                    number = apart.get((b, max(0, j - front)), 0)
                    if distance > cell.facts.longest or number != apart.get((b, i), 0):
                        continue
                    if j < front - filled[b]:
                        continue
                    k = cell.kv.weight[own] @ seen[j]
                    score = q @ k
                    if isinstance(position, LearnedDistances):
                        score = score + q @ position.vectors[distance - 1]
                    score = score / D**0.5
                    if isinstance(position, ALiBi):
                        score = score - 2 ** (-8 * (h + 1) / H) * distance
                    z = find_span(cell, x[b, i], h)
                    m: Any = 1.0
                    if z is not None:
                        m = ((RAMP + z - (distance - 1)) / RAMP).clamp(0, 1)
                    weight = m * score.exp()
                    top = top + weight * (cell.kv.weight[values] @ seen[j])
                    bottom = bottom + weight
                heads.append(top / bottom if bottom > 0 else top)
            y.append(cell.out.weight @ torch.cat(heads))
        rows.append(torch.stack(y))
    return torch.stack(rows)


MAKERS: dict[str, Callable[[], SpanAttention]] = {
    "short": lambda: make_cell([0.01, 0.12, 0.33]),
    "long": lambda: make_cell([0.51, 0.98, 0.01]),
    # as training begins: the mask of a token at a whole distance is exactly 0, with a slope
    "start": lambda: make_cell([0.0, 0.0, 0.25]),
    "fixed": lambda: make_cell(None),
    "dynamic": make_dynamic,
}


@pytest.mark.sampled(5)
@pytest.mark.parametrize("spans", MAKERS)
@pytest.mark.parametrize("kind", [NoPosition, LearnedDistances, ALiBi])
@pytest.mark.parametrize(
    ("length", "front"), mark_slow([(9, 0), (13, 11), (5, 40)], slow=[(5, 40)])
)
def test_the_loop_with_its_gradients(
    spans: str, kind: type[Position], length: int, front: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(span_attention, "_BLOCK", 4)
    cell, position = MAKERS[spans](), make_position(kind)
    filled = [front, front // 2]
    weigh = draw(B, length, W).detach()
    results = []
    for fast in (True, False):
        x, memory = draw(B, length, W), draw(B, front, W)
        if fast:
            tensors = {"text": x, **({"memory": memory} if front else {})}
            env = make_env(position, length, filled=torch.tensor(filled) if front else None)
            y = cell(Streams(tensors), env)
        else:
            y = loop(cell, position, x, memory, filled)
        cell.zero_grad()
        position.zero_grad()
        (y * weigh).sum().backward()
        inputs = [x.grad, *([memory.grad] if front else [])]
        results.append(
            [y, *inputs, *(p.grad for p in (*cell.parameters(), *position.parameters()))]
        )
    for ours, reference in zip(*results, strict=True):
        # slopes are in fp32
        torch.testing.assert_close(ours, reference, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("kind", [LearnedDistances, Rotary])
def test_documents_of_a_row_are_apart(
    kind: type[Position], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And padding changes nothing."""
    monkeypatch.setattr(span_attention, "_BLOCK", 3)
    cell, position, x = make_cell([0.2, 0.4, 0.0]), make_position(kind), draw(B, 11, W)
    document = torch.tensor([[0] * 4 + [1] * 7, [0] * 11])
    seq = Seq(torch.zeros(B, 11, dtype=torch.long), torch.tensor([11, 6]), {"document": document})
    env = make_env(position, 11, seq=seq)
    y = cell(Streams({"text": x}), env)
    for row, begin, end in ((0, 0, 4), (0, 4, 11), (1, 0, 6)):
        own = x[row : row + 1, begin:end]
        plain = replace(make_env(position, end - begin), seq=None)
        alone = cell(Streams({"text": own}), plain)
        torch.testing.assert_close(y[row : row + 1, begin:end], alone, rtol=1e-5, atol=1e-6)


@torch.no_grad()
@pytest.mark.parametrize("kind", [NoPosition, LearnedDistances, ALiBi, Rotary])
@pytest.mark.parametrize("make", [lambda: make_cell([0.2, 0.0, 0.1]), make_dynamic])
def test_token_by_token_equals_all_at_once(
    kind: type[Position], make: Callable[[], SpanAttention]
) -> None:
    cell, position, x = make(), make_position(kind), draw(B, 9, W)
    whole = cell(Streams({"text": x}), make_env(position, 9))
    cache, parts = Cache.of(1), []
    for size in (4, 1, 2, 1, 1):
        begin = sum(part.shape[1] for part in parts)
        new = Seq(torch.zeros(B, size, dtype=torch.long), torch.full((B,), size), full=True)
        cache.extend(new)
        env = make_env(position, size, seq=new, cache=cache)
        parts.append(cell(Streams({"text": x[:, begin : begin + size]}), env))
    torch.testing.assert_close(torch.cat(parts, 1), whole, rtol=1e-5, atol=1e-6)


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The pairs of queries and keys that each block computes."""
    pairs: list[int] = []
    attend = span_attention.attend

    def count(q: Tensor, k: Tensor, *others: Any, **more: Any) -> Tensor:
        pairs.append(q.shape[2] * k.shape[2])
        return attend(q, k, *others, **more)

    monkeypatch.setattr(span_attention, "attend", count)
    return pairs


def test_only_what_a_head_sees_is_computed(computed: list[int]) -> None:
    """The same result with all of memory; pairs grow with the longest span alone."""
    length, front, span = 64, 512, 512
    x, memory = draw(1, length, W).detach(), draw(1, front, W).detach()
    position = NoPosition()
    filled = torch.tensor([front])
    pairs = []
    for share in (0.0, 0.1, 0.5, 1.0):
        cell = make_cell([share, 0.0, 0.0], span)
        streams, env = Streams({"text": x, "memory": memory}), make_env(position, length)
        env = replace(env, seq=None, filled=filled)
        y = cell(streams, env)
        pairs.append(sum(computed))
        work = cell.work(RowSize(length, memory=front))
        assert work.scores == pytest.approx(3 * W * pairs[-1], rel=0.02)
        computed.clear()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(AdaptiveSpan, "reach", lambda soft, spans=None: soft.longest)
            torch.testing.assert_close(y, cell(streams, env), rtol=1e-9, atol=1e-9)
        computed.clear()
    assert pairs[0] < pairs[1] / 1.5 < pairs[2] / 4 < pairs[3] / 7
    assert make_cell([0.0] * 3, span).looks_back() == RAMP + 1
    assert make_cell([0.0, 0.5, 0.0], span).looks_back() == 256 + RAMP + 1
    assert make_cell([1.0] * 3, span).looks_back() == span
    with torch.device("meta"):  # before training
        assert (
            SpanAttention(width=W, num_heads=H, dropout=0.0, span=100, start=0.5).looks_back() == 83
        )


@torch.no_grad()
def test_only_what_tokens_see_is_computed(
    computed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys are made, and met by a block, as far back as the longest span of its tokens; the result
    is that with all of memory.
    """
    length, front, span = 128, 256, 256
    x, memory = draw(1, length, W), draw(1, front, W)
    cell, env = make_dynamic(span, spread=0.5, start=0.1), make_env(NoPosition(), length)
    env = replace(env, seq=None, filled=torch.tensor([front]))
    spans = cell.soft(x)[0]  # [H, T]
    reaches = [int(torch.ceil(half.max() + RAMP)) for half in spans.split(64, 1)]
    assert RAMP < min(reaches) < max(reaches) < 128  # else nothing is shown
    made: list[int] = []
    cell.kv.register_forward_hook(lambda kv, args, y: made.append(args[0].shape[1]))
    streams = Streams({"text": x, "memory": memory})
    y = cell(streams, env)
    assert made == [max(reaches) + length]
    # a block of 64 queries meets the keys from the reach of its first one to its last one
    assert computed == [64 * (reach + 63) for reach in reaches]
    monkeypatch.setattr(DynamicSpan, "reach", lambda soft, spans=None: soft.longest)
    torch.testing.assert_close(y, cell(streams, env), rtol=1e-9, atol=1e-9)
    assert made[1] == front + length
    assert cell.looks_back() == span  # a later token may see that far


@pytest.mark.parametrize("full", [True, False])
def test_the_penalty_of_dynamic_spans_is_a_mean_over_tokens(full: bool) -> None:
    """By row, head and token; padding has no part in it."""
    cell, x = make_dynamic(penalty=0.5), draw(B, 7, W)
    lengths = [7, 7] if full else [7, 4]
    seq = Seq(torch.zeros(B, 7, dtype=torch.long), torch.tensor(lengths), full=full)
    env = make_env(NoPosition(), 7, seq=seq)
    cell(Streams({"text": x}), env)
    expected, spans = torch.zeros((), dtype=torch.float64), []
    for b, length in enumerate(lengths):
        for h in range(H):
            for i in range(length):
                z = find_span(cell, x[b, i], h)
                assert z is not None
                spans.append(z.item())
                expected = expected + 0.5 * z / (B * H * length)
    noted = env.notes[cell.soft]
    penalty = cell.soft.penalty(noted)
    torch.testing.assert_close(penalty, expected)
    parts = [cell.soft.unit.weight, cell.soft.unit.bias, x]
    found, wanted = (torch.autograd.grad(y, parts, retain_graph=True) for y in (penalty, expected))
    torch.testing.assert_close(found, wanted)
    measured = cell.soft.measure([cell.soft], {cell.soft: noted})
    assert measured["mean_span"].item() == pytest.approx(2 * expected.item())
    assert measured["longest_span"].item() == pytest.approx(max(spans))
    assert not measured["mean_span"].requires_grad


def test_dynamic_spans_begin_alike_and_stay_in_bounds() -> None:
    cell = make_dynamic(100, spread=0.0, start=0.018)
    assert cell.soft(draw(B, 5, W)).tolist() == [[[pytest.approx(1.8)] * 5] * H] * B
    assert cell.work(RowSize(50)).scores == make_cell([0.018] * 3, 100).work(RowSize(50)).scores
    spans = make_dynamic(100, spread=1000.0).soft(draw(B, 5, W))
    assert bool(((spans >= 0) & (spans <= 100)).all())
    with torch.device("meta"):
        cell = SpanAttention(width=W, num_heads=H, dropout=0.0, span=100, start=0.018, dynamic=True)
    assert cell.looks_back() == 100


def test_spans_stay_within_bounds_and_are_measured() -> None:
    soft = AdaptiveSpan(num_heads=3, longest=100, ramp=8, start=0.2, strength=0.5)
    other = AdaptiveSpan(num_heads=3, longest=100, ramp=8, start=0.5, strength=0.5)
    assert soft.penalty().item() == pytest.approx(0.5 * 20)
    measured = soft.measure([soft, other], {})
    assert measured["mean_span"].item() == pytest.approx(35)
    assert measured["longest_span"].item() == pytest.approx(50)
    soft.share.data = torch.tensor([-0.5, 0.3, 1.7])
    soft.after_step(1)
    assert soft.share.tolist() == pytest.approx([0.0, 0.3, 1.0])
    soft.penalty().backward()
    torch.testing.assert_close(soft.share.grad, torch.full((3,), 0.5 * 100 / 3))


def test_fixed_spans_are_the_longest_and_cost_nothing() -> None:
    cell = make_cell(None)
    assert cell.looks_back() == 20
    assert not any("soft" in name for name in cell.state_dict())
    assert cell.soft.penalty() == 0
    assert cell.soft.measure([cell.soft], {})["mean_span"] == 20


def test_dropout_is_on_normalised_weights() -> None:
    cell, x = make_cell([0.3] * 3), draw(B, 9, W)
    cell.dropout = 0.5
    env = make_env(NoPosition(), 9)
    plain = cell.eval()(Streams({"text": x}), env)
    torch.manual_seed(0)
    many = cell.train()(Streams({"text": x.repeat(3000, 1, 1)}), replace(env, seq=None))
    mean = many.unflatten(0, (3000, B)).mean(0)
    torch.testing.assert_close(mean, plain, rtol=0, atol=0.05)
    assert not cell.train()(Streams({"text": x}), env).allclose(plain)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"start": 1.5}, r"start=1\.5.*0 to 1"),
        ({"ramp": 0}, r"ramp=0.*more than 0"),
        ({"penalty": -1.0}, r"penalty=-1\.0.*0 or more"),
        ({"dynamic": True}, r"start=0\.0.*where spans are dynamic"),
        ({"dynamic": True, "start": 1.0}, r"start=1\.0.*less than 1"),
        ({"dynamic": True, "adaptive": False}, r"dynamic=True.*only with adaptive=true"),
    ],
)
def test_bad_settings_are_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SpanAttention(width=W, num_heads=H, dropout=0.0, span=8, **settings)
