"""Kernels on CUDA against the dense one: answers and gradients in half precision, and compiled.
These tests need torch, numpy and pytest alone; whole models are in test_gpu_models.py.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from plmctl.attention.kernels.banded import Banded, HeadsPlan
from plmctl.attention.kernels.base import Bias, Kernel, KernelPlan
from plmctl.attention.kernels.dense import Dense
from plmctl.attention.kernels.flex import Flex, FlexPlan
from plmctl.attention.kernels.varlen import Varlen, VarlenPlan
from plmctl.attention.patterns.base import Pattern
from plmctl.attention.patterns.documents import Documents
from plmctl.attention.patterns.padding import Padding
from plmctl.attention.patterns.window import Window
from plmctl.core.batch import Seq
from plmctl.core.errors import ConfigError
from plmctl.nn.positions import ALiBi, RelativeBuckets
from tests.attention.test_banded import PATTERNS, B, positions, rows
from tests.attention.varlen_loop import BANDS

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
H, LENGTH, D = 4, 306, 32  # no multiple of a block
TOLERANCE = {torch.bfloat16: 3e-2, torch.float16: 4e-3, torch.float32: 2e-3}  # fp32: tf32 products


def on_gpu(seq: Seq) -> Seq:
    tracks = {name: track.cuda() for name, track in seq.tracks.items()}
    return Seq(seq.ids.cuda(), seq.length.cuda(), tracks, full=seq.full)


def computed(
    made: Kernel,
    pattern: Pattern,
    seq: Seq,
    kind: torch.dtype,
    bias: Bias | None = None,
    parameters: tuple[Tensor, ...] = (),
) -> list[Tensor]:
    """The answer for real tokens and the gradients of a sum of it with weights, in fp32."""
    g = torch.Generator().manual_seed(0)
    draws = [torch.randn(B, H, LENGTH, D, generator=g) for _ in range(4)]
    # the same numbers in every type
    q, k, v = (x.cuda().to(torch.bfloat16).to(kind).requires_grad_() for x in draws[:3])
    place = positions(seq).cuda()
    plan = made.plan(pattern, seq)
    y = plan.attend(q, k, v, q_positions=place, k_positions=place, bias=bias)
    assert y.dtype == kind
    weight = draws[3].cuda() * seq.real[:, None, :, None]
    grads = torch.autograd.grad((y.float() * weight).sum(), [q, k, v, *parameters])
    return [(y * seq.real[:, None, :, None]).detach().float(), *[grad.float() for grad in grads]]


def compare(made: Kernel, pattern: Pattern, seq: Seq, kind: torch.dtype, **given) -> None:
    """Against the dense answer in fp32: no kernel is the truth in bf16."""
    found = computed(made, pattern, seq, kind, **given)
    expected = computed(Dense(), pattern, seq, torch.float32, **given)
    for a, b in zip(found, expected, strict=True):
        scale = float(b.abs().max().clamp(min=1))
        torch.testing.assert_close(a / scale, b / scale, atol=TOLERANCE[kind], rtol=0)


@pytest.mark.parametrize("name", BANDS)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16], ids=str)
def test_varlen(name: str, packed: bool, padded: bool, kind: torch.dtype) -> None:
    seq = on_gpu(rows(padded=padded, packed=packed, length=LENGTH))
    pattern = BANDS[name] & Padding() & Documents()
    assert isinstance(Varlen().plan(pattern, seq), VarlenPlan | HeadsPlan)
    compare(Varlen(), pattern, seq, kind)


@pytest.mark.parametrize("name", PATTERNS)
@pytest.mark.parametrize(
    ("packed", "kind"), [(False, torch.float32), (True, torch.bfloat16)], ids=str
)
def test_flex(name: str, packed: bool, kind: torch.dtype) -> None:
    seq = on_gpu(rows(padded=True, packed=packed, length=LENGTH))
    pattern = PATTERNS[name] & Padding() & Documents()
    assert isinstance(Flex().plan(pattern, seq), FlexPlan)
    compare(Flex(), pattern, seq, kind)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16], ids=str)
def test_flex_adds_biases_by_distance(packed: bool, kind: torch.dtype) -> None:
    seq = on_gpu(rows(padded=True, packed=packed, length=LENGTH))
    pattern = Window(reach=40) & Padding() & Documents()
    compare(Flex(), pattern, seq, kind, bias=ALiBi(num_heads=H).bias)
    buckets = RelativeBuckets(num_heads=H, bidirectional=True, buckets=8, max_distance=20).cuda()
    torch.nn.init.normal_(buckets.table.weight, generator=torch.Generator("cuda").manual_seed(4))
    compare(Flex(), pattern, seq, kind, bias=buckets.bias, parameters=(buckets.table.weight,))


@pytest.mark.parametrize("name", ["window", "longformer", "windows by head"])
def test_banded(name: str) -> None:
    seq = on_gpu(rows(padded=True, packed=True, length=LENGTH))
    compare(Banded(block=64), PATTERNS[name] & Padding() & Documents(), seq, torch.bfloat16)


def test_varlen_refuses_fp32() -> None:
    seq = on_gpu(rows(padded=False, packed=False, length=LENGTH))
    with pytest.raises(ConfigError, match="bf16 or fp16"):
        computed(Varlen(), Window(reach=5), seq, torch.float32)


@pytest.mark.parametrize("name", ["window", "windows by head"])
@pytest.mark.parametrize("kernel", ["varlen", "flex"])
def test_compiled_with_what_is_around_it(kernel: str, name: str) -> None:
    """One graph for batches of several sizes, after the first few."""
    made: Kernel = Varlen() if kernel == "varlen" else Flex()
    pattern = (BANDS["by head"] if name == "windows by head" else BANDS[name]) & Padding()
    torch.compiler.reset()

    def run(x: Tensor, plan: KernelPlan, place: Tensor) -> Tensor:
        y = plan.attend(x.sin(), x.cos(), x, q_positions=place, k_positions=place)
        return y.float().square()

    compiled = torch.compile(run)
    for padded, packed in [(False, False), (True, True), (True, False), (False, True)]:
        seq = on_gpu(rows(padded=padded, packed=packed, length=LENGTH))
        plan = made.plan(pattern & Documents(), seq)
        x = torch.randn(B, H, LENGTH, D, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        results = []
        for function in (run, compiled):
            y = function(x, plan, positions(seq)) * seq.real[:, None, :, None]
            results.append([y.detach(), *torch.autograd.grad(y.sum(), x)])
        torch.testing.assert_close(*results, atol=5e-2, rtol=5e-2)


def test_varlen_keeps_no_scores() -> None:
    """What is left on the GPU between the passes grows with T, not with T T."""
    kept = []
    for length in (2048, 8192):
        seq = on_gpu(rows(padded=False, packed=False, length=length))
        pattern = Window(reach=64) & Padding() & Documents()
        plan = Varlen().plan(pattern, seq)
        q = torch.randn(B, H, length, D, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        place = positions(seq).cuda()
        before = torch.cuda.memory_allocated()
        y = plan.attend(q, q, q, q_positions=place, k_positions=place)
        kept.append(torch.cuda.memory_allocated() - before)
        del y
    assert kept[1] < 6 * kept[0]
