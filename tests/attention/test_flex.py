"""The flex kernel: its block masks anywhere, its answers on CUDA are in test_gpu_kernels.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor

from plmctl.attention.kernels.bands import Band
from plmctl.attention.kernels.base import is_by_distance
from plmctl.attention.kernels.dense import Dense
from plmctl.attention.kernels.flex import BLOCK, Flex, FlexPlan, compile_flex
from plmctl.attention.patterns.base import Full
from plmctl.attention.patterns.by_head import ByHead
from plmctl.attention.patterns.causal import Causal
from plmctl.attention.patterns.documents import Documents
from plmctl.attention.patterns.padding import Padding
from plmctl.attention.patterns.window import Window
from plmctl.core.batch import Batch
from plmctl.core.errors import ConfigError
from plmctl.nn.positions import ALiBi, RelativeBuckets
from tests.attention.test_banded import PATTERNS, B, T, positions, rows
from tests.attention.test_banded import inputs as short_inputs
from tests.attention.test_varlen import small_model
from tests.attention.varlen_loop import BANDS

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask

H, LENGTH, D = 4, BLOCK + 70, 16


def uncompiled() -> Callable[..., Any]:
    """torch's function; it brings the compiler, which every process of tests would import."""
    from torch.nn.attention.flex_attention import flex_attention

    return flex_attention


def inputs() -> list[Tensor]:
    g = torch.Generator().manual_seed(0)
    return [torch.randn(B, H, LENGTH, D, generator=g) for _ in range(3)]


def cut_blocks(allowed: Tensor, size: int = BLOCK) -> Tensor:
    """[..., T, T] -> [..., N, N, size^2]: all pairs of a block; those beyond the row are False."""
    missing = -allowed.shape[-1] % size
    cut = torch.nn.functional.pad(allowed, (0, missing, 0, missing))
    return cut.unflatten(-1, (-1, size)).unflatten(-3, (-1, size)).transpose(-2, -3).flatten(-2)


def listed(counts: Tensor, indices: Tensor) -> Tensor:
    """[..., N, N] bool of torch's lists of blocks."""
    first = torch.arange(indices.shape[-1]) < counts[..., None]
    return torch.zeros_like(first).scatter(-1, indices.long(), first)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", BANDS)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("padded", [False, True])
def test_blocks_that_a_band_fills(name: str, packed: bool, padded: bool) -> None:
    seq = rows(padded=padded, packed=packed)
    for head in range(H):
        pattern = (BANDS[name] & Padding() & Documents()).of_head(head).simplify(seq)
        band = Band.of(pattern)
        assert band is not None
        for size in (3, 4, 8):
            dense = pattern.dense(seq)
            dense = torch.ones(1, 1, 1, 1, dtype=torch.bool) if dense is None else dense
            expected = cut_blocks(dense.expand(B, 1, T, T), size).all(-1)[:, 0]
            assert torch.equal(band.whole_blocks(seq, size).expand(B, -1, -1), expected)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", PATTERNS)
@pytest.mark.parametrize("packed", [False, True])
def test_the_blocks_are_those_of_the_pattern(name: str, packed: bool) -> None:
    seq = rows(padded=True, packed=packed, length=LENGTH)
    pattern = PATTERNS[name] & Padding() & Documents()
    mask, dense = Flex().block_mask(pattern, seq), pattern.dense(seq)
    assert dense is not None
    allowed = cut_blocks(dense.expand(B, H, LENGTH, LENGTH))
    assert bool((allowed.any(-1) <= mask.to_dense().bool()).all())
    whole = listed(mask.full_kv_num_blocks, mask.full_kv_indices)
    assert bool((whole <= allowed.all(-1)).all())
    assert not bool((whole & listed(mask.kv_num_blocks, mask.kv_indices)).any())


@pytest.mark.sampled(7)
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("name", PATTERNS)
def test_the_predicate_is_that_of_the_pattern(name: str) -> None:
    """What torch computes without a compiler: it reads the predicate alone, not the blocks."""
    seq = rows(padded=True, packed=True)
    pattern = PATTERNS[name] & Padding() & Documents()
    mask, place = Flex().block_mask(pattern, seq), positions(seq)
    q, k, v = (x.detach() for x in short_inputs())
    given = {"q_positions": place, "k_positions": place}
    with torch.no_grad():
        made = FlexPlan(pattern, seq, mask, uncompiled(), T - 1)
        found = made.attend(q, k, v, **given)
        expected = Dense().plan(pattern, seq).attend(q, k, v, **given)
    torch.testing.assert_close(found, expected, atol=1e-10, rtol=1e-10)


def test_each_head_has_its_own_blocks() -> None:
    seq = rows(padded=False, packed=False, length=1024)
    made = Flex()
    narrow, wide = Window(reach=40), Window(reach=300)
    mask = made.block_mask(ByHead(parts=[narrow, wide], num_heads=H), seq).to_dense().bool()
    expected = [made.block_mask(part, seq).to_dense().bool()[:, 0] for part in (narrow, wide)]
    for head in range(H):
        assert torch.equal(mask[:, head], expected[head // 2])
    both = ByHead(parts=[narrow, wide], num_heads=H)
    share = (made.share(narrow, 1024) + made.share(wide, 1024)) / 2
    assert made.share(both, 1024) == pytest.approx(share)
    assert made.block_mask(Full(), seq) is None


@pytest.mark.sampled(2)
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("packed", [False, True])
def test_biases_by_distance_are_read_from_a_table(packed: bool) -> None:
    seq = rows(padded=True, packed=packed, length=LENGTH)
    pattern = Window(reach=60) & Padding() & Documents()
    place = positions(seq) + 7  # a row may begin at any position
    seq = seq.with_tracks(position=place.expand(B, -1))
    buckets = RelativeBuckets(num_heads=H, bidirectional=True, buckets=8, max_distance=20)
    torch.nn.init.normal_(buckets.table.weight, generator=torch.Generator().manual_seed(4))
    for bias in (ALiBi(num_heads=H).bias, buckets.bias):
        assert is_by_distance(bias)
        assert Flex().problem(pattern, 64, bias=bias, dropout=0.0) is None
        q, k, v = inputs()
        given = {"q_positions": place, "k_positions": place, "bias": bias}
        with torch.no_grad():
            made = FlexPlan(pattern, seq, Flex().block_mask(pattern, seq), uncompiled(), LENGTH)
            found = made.attend(q, k, v, **given)
            expected = Dense().plan(pattern, seq).attend(q, k, v, **given)
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.sampled(2)
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize(
    ("words", "count"),
    [(["pattern=window", "pattern.reach=4"], 1), (["pattern=window", "pattern.reach=[3,9,3]"], 2)],
    ids=str,
)
def test_a_batch_has_one_block_mask_for_all_equal_layers(
    words: list[str], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of packed rows, whose masks no other batch shares; a whole model reads them."""
    from torch.nn.attention.flex_attention import BlockMask

    made: list[object] = []
    make = BlockMask.from_kv_blocks

    def counted(*given: object, **more: object) -> BlockMask:
        made.append(given)
        return make(*given, **more)

    monkeypatch.setattr(BlockMask, "from_kv_blocks", counted)
    monkeypatch.setattr(Flex, "devices", frozenset({"cpu"}))
    monkeypatch.setattr("plmctl.attention.kernels.flex.compile_flex", uncompiled)
    seq = rows(padded=True, packed=True)
    batch = Batch(torch.arange(B), {"text": seq})
    states = []
    for kernel in ("flex", "dense"):
        with torch.no_grad():
            model = small_model(*words, kernel=kernel).requires_grad_(False)
            states += [model(batch).last for _ in range(2)]
    assert len(made) == 2 * count  # two batches
    torch.testing.assert_close(states[0], states[2], atol=1e-5, rtol=1e-5)


def test_block_masks_of_static_patterns_are_kept() -> None:
    made, seq = Flex(), rows(padded=False, packed=False, length=LENGTH)
    pattern = Causal() & Window(reach=30) & Padding() & Documents()
    assert made.block_mask(pattern, seq) is made.block_mask(pattern, seq)
    packed = rows(padded=False, packed=True, length=LENGTH)
    assert made.block_mask(pattern, packed) is not made.block_mask(pattern, packed)


@pytest.mark.slow  # compiles nine times; answers are compared in the next tests
def test_as_many_patterns_are_compiled_as_block_masks_are_kept() -> None:
    """Beyond torch's own limit it would store all scores, and not say so."""
    import torch._dynamo

    compile_flex.cache_clear()
    with torch._dynamo.config.patch(recompile_limit=8):
        compile_flex()
        assert torch._dynamo.config.recompile_limit >= 256
    compile_flex.cache_clear()


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
    mask = Flex().block_mask(Window(reach=3), seq)
    plan = FlexPlan(Window(reach=3), seq, mask, uncompiled(), LENGTH - 1)
    q, k, v = inputs()
    given = {"q_positions": positions(seq), "k_positions": positions(seq)}

    def other(q: Tensor, q_positions: Tensor, k_positions: Tensor) -> Tensor:
        return q[..., :1] * k_positions[:, None, None, :]

    with pytest.raises(ConfigError, match="dropout"):
        plan.attend(q, k, v, dropout=0.1, **given)
    with pytest.raises(ConfigError, match="dense or banded"):
        plan.attend(q, k, v, bias=other, **given)
    for told, more in (("dropout", {"dropout": 0.1}), ("dense or banded", {"bias": other})):
        problem = Flex().problem(Window(reach=3), 64, **{"bias": None, "dropout": 0.0, **more})
        assert told in str(problem)
