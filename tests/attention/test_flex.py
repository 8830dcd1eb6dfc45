"""The flex kernel: its block masks anywhere, its answers on CUDA."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.attention.flex_attention import flex_attention

from plmctl.attention.kernels.dense import Dense
from plmctl.attention.kernels.flex import BLOCK, Flex, FlexPlan
from plmctl.attention.patterns.causal import Causal
from plmctl.attention.patterns.documents import Documents
from plmctl.attention.patterns.padding import Padding
from plmctl.attention.patterns.window import Window
from plmctl.core.batch import Seq
from plmctl.core.errors import ConfigError
from plmctl.nn.positions import ALiBi
from tests.attention.test_banded import PATTERNS, B, positions, rows

H, LENGTH, D = 4, 2 * BLOCK + 50, 16


def inputs() -> list[Tensor]:
    g = torch.Generator().manual_seed(0)
    return [torch.randn(B, H, LENGTH, D, generator=g) for _ in range(3)]


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("name", PATTERNS)
@pytest.mark.parametrize("packed", [False, True])
def test_the_block_mask_and_the_predicate_are_those_of_the_pattern(name: str, packed: bool) -> None:
    """What torch computes without a compiler is the predicate alone; the blocks are compared."""
    seq = rows(padded=True, packed=packed, length=LENGTH)
    pattern = PATTERNS[name] & Padding() & Documents()
    mask = Flex().block_mask(pattern, seq)
    needed = pattern.simplify(seq).blocks(seq, BLOCK)
    assert torch.equal(mask.to_dense()[:, 0].bool(), needed)
    q, k, v = inputs()
    place = positions(seq)
    with torch.no_grad():
        made = FlexPlan(pattern, seq, mask, flex_attention)
        found = made.attend(q, k, v, q_positions=place, k_positions=place)
        plan = Dense().plan(pattern, seq)
        expected = plan.attend(q, k, v, q_positions=place, k_positions=place)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def test_block_masks_of_static_patterns_are_kept() -> None:
    made, seq = Flex(), rows(padded=False, packed=False, length=LENGTH)
    pattern = Causal() & Window(reach=30) & Padding() & Documents()
    assert made.block_mask(pattern, seq) is made.block_mask(pattern, seq)
    packed = rows(padded=False, packed=True, length=LENGTH)
    assert made.block_mask(pattern, packed) is not made.block_mask(pattern, packed)


def test_elsewhere_the_banded_kernel_computes() -> None:
    seq = rows(padded=True, packed=False, length=LENGTH)
    pattern = Window(reach=30) & Padding() & Documents()
    given = {"q_positions": positions(seq), "k_positions": positions(seq)}
    found, expected = (
        made.plan(pattern, seq).attend(*inputs(), **given) for made in (Flex(), Dense())
    )
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def test_what_it_cannot_do_is_said() -> None:
    seq = rows(padded=False, packed=False, length=LENGTH)
    plan = FlexPlan(Window(reach=3), seq, Flex().block_mask(Window(reach=3), seq), flex_attention)
    q, k, v = inputs()
    given = {"q_positions": positions(seq), "k_positions": positions(seq)}
    with pytest.raises(ConfigError, match="dropout"):
        plan.attend(q, k, v, dropout=0.1, **given)
    with pytest.raises(ConfigError, match="dense or banded"):
        plan.attend(q, k, v, bias=ALiBi(num_heads=H).bias, **given)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", PATTERNS)
@pytest.mark.parametrize("packed", [False, True])
def test_it_is_the_dense_answer_on_cuda(name: str, packed: bool) -> None:
    here = rows(padded=True, packed=packed, length=LENGTH)
    tracks = {key: track.cuda() for key, track in here.tracks.items()}
    seq = Seq(here.ids.cuda(), here.length.cuda(), tracks)
    pattern = PATTERNS[name] & Padding() & Documents()
    place = positions(here).cuda()
    found = []
    for made in (Dense(), Flex()):
        q, k, v = (x.cuda().requires_grad_() for x in inputs())
        y = made.plan(pattern, seq).attend(q, k, v, q_positions=place, k_positions=place)
        found.append([y, *torch.autograd.grad(y.square().sum(), (q, k, v))])
    torch.testing.assert_close(found[1], found[0], atol=2e-3, rtol=2e-3)  # tf32 products
