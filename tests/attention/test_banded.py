"""The banded kernel against the dense one: patterns, packing, padding, biases, gradients."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from plmctl.attention.kernels import auto
from plmctl.attention.kernels.auto import LEAST, Auto
from plmctl.attention.kernels.banded import Banded, BlockPlan
from plmctl.attention.kernels.base import Bias, Kernel
from plmctl.attention.kernels.dense import Dense, Mask
from plmctl.attention.patterns.anticausal import Anticausal
from plmctl.attention.patterns.base import Full, Pattern
from plmctl.attention.patterns.big_bird import BigBird
from plmctl.attention.patterns.by_head import ByHead
from plmctl.attention.patterns.by_segment import BySegment
from plmctl.attention.patterns.causal import Causal
from plmctl.attention.patterns.dilated import Dilated
from plmctl.attention.patterns.documents import Documents
from plmctl.attention.patterns.global_tokens import Global
from plmctl.attention.patterns.own_block import OwnBlock
from plmctl.attention.patterns.padding import Padding
from plmctl.attention.patterns.prefix import CausalWithPrefix
from plmctl.attention.patterns.sparse_transformer import sparse_transformer
from plmctl.attention.patterns.strided import Strided
from plmctl.attention.patterns.window import Window
from plmctl.attention.patterns.windows import windows
from plmctl.core.batch import Seq
from plmctl.core.errors import ConfigError
from plmctl.nn.positions import ALiBi, RelativeBuckets
from tests.marks import mark_slow

B, H, T, D = 3, 4, 75, 8

PATTERNS: dict[str, Pattern] = {
    "window": Window(reach=5),
    "causal window": Causal() & Window(reach=9),
    "right to left": Anticausal() & Window(reach=4),
    "causal": Causal(),
    "full": Full(),
    "dilated": Dilated(reach=2, dilation=[7]),
    "dilated by head": Dilated(reach=2, dilation=[1, 2, 8, 19]),
    "longformer": Window(reach=3) | Global(tokens=2),
    "causal with global": Causal() & (Window(reach=3) | Global(tokens=1)),
    "window or far": Window(reach=2) | Dilated(reach=1, dilation=[40]),
    "prefix in a window": CausalWithPrefix() & Window(reach=20),
    "by segment": BySegment(parts=[Window(reach=3), Causal() & Window(reach=30)]),
    "not near": Causal() & ~Window(reach=30),
    "windows by head": windows(reach=[[2, 2, 5, 40]], dilation=[[1, 4, 3, 1]], num_heads=H),
    "one head full": ByHead(parts=[Window(reach=3), Full()], num_heads=H),
    "every seventh": Strided(stride=7),
    "some of those": Strided(stride=6) & Dilated(reach=2, dilation=[4]),
    "strided, merged": sparse_transformer(
        variant="strided", stride=8, factors="merged", num_heads=H, num_layers=1
    ),
    "strided, by head": sparse_transformer(
        variant="strided", stride=9, factors="heads", num_heads=H, num_layers=1
    ),
    "fixed, merged": sparse_transformer(
        variant="fixed", stride=16, columns=3, factors="merged", num_heads=H, num_layers=1
    ),
    "fixed, by head": sparse_transformer(
        variant="fixed", stride=8, columns=2, factors="heads", num_heads=H, num_layers=1
    ),
    "gaps in blocks": OwnBlock(stride=30) & Dilated(reach=4, dilation=[5]),
    "far, or global": Dilated(reach=2, dilation=[11]) | Global(tokens=2),
    "two gaps": Dilated(reach=3, dilation=[6]) | Dilated(reach=3, dilation=[10]),
    "gaps by segment": BySegment(parts=[Dilated(reach=2, dilation=[8]), Causal()]),
    "gaps in a prefix": CausalWithPrefix() & Strided(stride=12),
    "big bird": BigBird(
        block=8, window=3, first=1, last=1, random=2, seed=3, num_layers=4
    ).at_layer(2),
}


def rows(*, padded: bool, packed: bool, length: int = T) -> Seq:
    g = torch.Generator().manual_seed(3)
    sizes = torch.tensor([length, length - 20, length // 2]) if padded else torch.full((B,), length)
    place = torch.arange(length).expand(B, -1)
    real = place < sizes[:, None]
    tracks = {"segment": (place > length // 3).long()}
    if packed:
        begins = (torch.rand(B, length, generator=g) < 0.07) | (place == 0)
        tracks["document"] = (begins.cumsum(1) - 1).masked_fill(~real, -1)
        tracks["position"] = place - (place * begins).cummax(1)[0]
    return Seq(torch.zeros(B, length, dtype=torch.long), sizes, tracks, full=not padded)


def positions(seq: Seq) -> Tensor:
    return seq.tracks.get("position", torch.arange(seq.ids.shape[1])[None])


def inputs(length: int = T) -> Iterator[Tensor]:
    g = torch.Generator().manual_seed(0)
    for _ in range(3):
        x = torch.randn(B, H, length, D, generator=g, dtype=torch.float64)
        yield x.requires_grad_()


def computed(
    made: Kernel, pattern: Pattern, seq: Seq, bias: Bias | None, parameters: list[Tensor]
) -> list[Tensor]:
    """The answer, and the gradients of a sum of it with weights."""
    q, k, v = inputs(seq.ids.shape[1])
    place = positions(seq)
    y = made.plan(pattern, seq).attend(q, k, v, q_positions=place, k_positions=place, bias=bias)
    weight = torch.randn(y.shape, generator=torch.Generator().manual_seed(1), dtype=y.dtype)
    return [y, *torch.autograd.grad((y * weight).sum(), [q, k, v, *parameters])]


def biases(name: str) -> tuple[Bias | None, list[Tensor]]:
    if name == "alibi":
        return ALiBi(num_heads=H).bias, []
    if name == "buckets":
        made = RelativeBuckets(num_heads=H, bidirectional=True, buckets=8, max_distance=20).double()
        torch.nn.init.normal_(made.table.weight, generator=torch.Generator().manual_seed(4))
        return made.bias, [made.table.weight]
    return None, []


@pytest.mark.sampled(11)
@pytest.mark.parametrize("name", PATTERNS)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("bias", ["none", "alibi", "buckets"])
def test_it_is_the_dense_answer(name: str, packed: bool, padded: bool, bias: str) -> None:
    seq = rows(padded=padded, packed=packed)
    pattern = PATTERNS[name] & Padding() & Documents()
    change, parameters = biases(bias)
    expected = computed(Dense(), pattern, seq, change, parameters)
    for size in (8, 32):
        found = computed(Banded(block=size), pattern, seq, change, parameters)
        torch.testing.assert_close(found, expected, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize(
    "name", ["window", "two gaps", "strided, merged", "strided, by head", "windows by head"]
)
def test_it_rounds_no_worse_than_the_dense_kernel(name: str) -> None:
    """In fp32, from the answer in fp64: what parts are merged adds no error of its own."""
    seq, pattern, place = rows(padded=False, packed=False), PATTERNS[name], torch.arange(T)[None]
    errors, expected = [], computed(Dense(), pattern, seq, None, [])
    for made in (Dense(), Banded(block=16)):
        given = [x.detach().float().requires_grad_() for x in inputs()]
        y = made.plan(pattern, seq).attend(*given, q_positions=place, k_positions=place)
        weight = torch.randn(
            y.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64
        )
        found = [y, *torch.autograd.grad((y * weight.float()).sum(), given)]
        pairs = zip(found, expected, strict=True)
        errors.append([float((a.detach() - b.detach()).norm()) for a, b in pairs])
    assert all(own < 1.5 * dense for dense, own in zip(*errors, strict=True))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "name", mark_slow(["window", "longformer", "dilated by head"], slow=["dilated by head"])
)
def test_dropout_is_exact_in_expectation(name: str) -> None:
    seq = rows(padded=True, packed=False)
    q, k, v = (x.detach() for x in inputs())
    plan = Banded(block=16).plan(PATTERNS[name] & Padding(), seq)
    given = {"q_positions": positions(seq), "k_positions": positions(seq)}
    torch.manual_seed(0)
    many = torch.stack([plan.attend(q, k, v, dropout=0.2, **given) for _ in range(500)])
    plain = plan.attend(q, k, v, **given)
    error = many.std(0) / math.sqrt(len(many))
    assert ((many.mean(0) - plain).abs() <= 6 * error + 1e-9).all()
    assert bool((error > 0).any())


def test_the_gradient_under_dropout_is_that_of_the_same_draw() -> None:
    seq = rows(padded=False, packed=False, length=37)
    place = positions(seq)
    q, k, v = (x[:1, :1].detach().requires_grad_() for x in inputs(37))
    one = Seq(seq.ids[:1], seq.length[:1], {}, full=True)
    plan = Banded(block=16).plan(Window(reach=5), one)

    def run(*given: Tensor) -> Tensor:
        torch.manual_seed(5)
        return plan.attend(*given, q_positions=place, k_positions=place, dropout=0.25).sum(2)

    assert torch.autograd.gradcheck(run, (q, k, v), fast_mode=True)


def test_only_what_is_in_reach_is_computed() -> None:
    """Of 4,096 tokens and a window of 128: 3 of 32 blocks; a global token adds a row and a
    column.
    """
    made = Banded(block=128)
    assert made.share(Window(reach=128), 4096) == pytest.approx(3 / 32, rel=0.01)
    assert made.share(Window(reach=128) | Global(tokens=1), 4096) < 5.1 / 32
    assert made.share(Full(), 4096) == 1
    plan = made.plan(Window(reach=128), rows(padded=False, packed=False, length=4096))
    assert isinstance(plan, BlockPlan)
    assert max(each.mask.mask.numel() for each in plan.classes) <= B * 4096 * 3 * 128


def test_plans_of_static_patterns_are_kept() -> None:
    made, seq = Banded(block=16), rows(padded=False, packed=False)
    pattern = Causal() & Window(reach=3) & Padding() & Documents()
    assert made.plan(pattern, seq) is made.plan(pattern, seq)
    assert made.plan(Causal() & Window(reach=4), seq) is not made.plan(pattern, seq)
    packed = rows(padded=False, packed=True)
    assert made.plan(pattern, packed) is not made.plan(pattern, packed)


def test_auto_leaves_rows_alone_where_nothing_is_gained() -> None:
    made = Auto()
    assert made.choose(Window(reach=16), LEAST - 1) is made.dense
    assert made.choose(Window(reach=16), LEAST) is made.banded
    assert made.choose(Causal() & Padding() & Documents(), 4 * LEAST) is made.dense
    assert made.share(Window(reach=16), LEAST - 1) == 1
    assert made.share(Window(reach=16), 4 * LEAST) < 0.2
    assert made.remark(Full(), 4096) == ""
    assert "kernel dense" in made.remark(Window(reach=16), LEAST - 1)
    told = made.remark(Window(reach=16), 4096)
    why = "(kernel=auto: at most half, in rows of 1,024 tokens or more)"
    assert told == f"kernel banded: 2% of the scores are computed {why}"


def test_auto_takes_flex_on_a_gpu_where_it_can_train(monkeypatch: pytest.MonkeyPatch) -> None:
    pattern, bias = Window(reach=16), RelativeBuckets(num_heads=H, bidirectional=True).bias
    monkeypatch.setattr(auto, "can_compile_for_gpu", lambda: False)
    made = Auto().settle(bias=None, dropout=0.0, head_width=16)
    assert made.choose(pattern, LEAST, "cuda") is made.banded
    monkeypatch.setattr(auto, "can_compile_for_gpu", lambda: True)
    for dropout, added, fits in [(0.0, None, True), (0.1, None, False), (0.0, bias, True)]:
        made = Auto().settle(bias=added, dropout=dropout, head_width=16)
        assert made.choose(pattern, LEAST) is made.banded
        chosen = made.choose(pattern, LEAST, "cuda")
        assert chosen is (made.flex if fits else made.banded)
        assert made.choose(pattern, LEAST - 1, "cuda") is made.dense
        assert made.choose(Full(), LEAST, "cuda") is made.dense
    narrow = Auto().settle(bias=None, dropout=0.0, head_width=15)
    assert narrow.choose(pattern, LEAST, "cuda") is narrow.banded
    made = Auto().settle(bias=None, dropout=0.0, head_width=16)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "kernel banded" in made.remark(pattern, LEAST)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert made.remark(pattern, LEAST).startswith("kernel flex: ")


def test_a_text_that_is_read_on_is_computed_by_the_dense_kernel() -> None:
    seq = rows(padded=False, packed=False)
    assert isinstance(Banded(block=16).plan(Window(reach=3), seq, start=T - 1), Mask)


def test_a_block_has_tokens() -> None:
    with pytest.raises(ConfigError, match="block=0"):
        Banded(block=0)


def test_queries_that_see_nothing_are_opened_and_named() -> None:
    """As kernels of GPUs need it: with the others' masks as they are."""
    seen = torch.tensor([[True, False], [False, False]])[None, None]
    opened, blind = Mask(seen).open_blind() or (seen, seen)
    assert opened.tolist() == [[[[True, False], [True, True]]]]
    assert blind.tolist() == [[[[False], [True]]]]
    assert Mask(None).open_blind() is None
