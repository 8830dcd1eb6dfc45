"""Sparse patterns against their definitions, written as loops; what they refuse; and that the
banded kernel computes few scores for them.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from plmctl.attention.kernels.auto import Auto
from plmctl.attention.kernels.banded import Banded, BlockPlan, HeadsPlan, ViewsPlan
from plmctl.attention.patterns.base import Pattern
from plmctl.attention.patterns.big_bird import BigBird
from plmctl.attention.patterns.by_head import ByHead
from plmctl.attention.patterns.by_layer import ByLayer
from plmctl.attention.patterns.causal import Causal
from plmctl.attention.patterns.diet import diet
from plmctl.attention.patterns.dilated import Dilated
from plmctl.attention.patterns.own_block import OwnBlock
from plmctl.attention.patterns.remarks import remark_on
from plmctl.attention.patterns.sparse_transformer import sparse_transformer
from plmctl.attention.patterns.strided import Strided
from plmctl.attention.patterns.summaries import Summaries
from plmctl.attention.patterns.window import Window
from plmctl.attention.patterns.windows import windows
from plmctl.config.build import build
from plmctl.core.batch import Seq
from plmctl.core.errors import ConfigError

T, H = 30, 4
# (layer, head, query, key) -> may the query see the key?
Definition = Callable[[int, int, int, int], bool]


def row(length: int = T) -> Seq:
    return Seq(torch.zeros(1, length, dtype=torch.long), torch.tensor([length]), full=True)


def strided(factors: str) -> Pattern:
    return sparse_transformer(
        variant="strided", stride=6, factors=factors, num_heads=H, num_layers=2
    )


def fixed(factors: str) -> Pattern:
    return sparse_transformer(
        variant="fixed", stride=8, columns=3, factors=factors, num_heads=H, num_layers=2
    )


def near_strided(q: int, k: int) -> bool:
    return k in range(max(0, q - 6), q + 1)


def far_strided(q: int, k: int) -> bool:
    return k in range(q, -1, -6)


def near_fixed(q: int, k: int) -> bool:
    return k <= q and q // 8 == k // 8


def far_fixed(q: int, k: int) -> bool:
    return k <= q and k % 8 in (5, 6, 7)


def define_sparse(
    title: str,
    make: Callable[[str], Pattern],
    near: Callable[[int, int], bool],
    far: Callable[[int, int], bool],
) -> dict[str, tuple[Pattern, int, Definition]]:
    """The two parts by layer, by head, and together."""
    return {
        f"sparse, {title} by layer": (make("layers"), 2, lambda n, h, q, k: (near, far)[n](q, k)),
        f"sparse, {title} by head": (
            make("heads"),
            1,
            lambda n, h, q, k: (near, far)[h // 2](q, k),
        ),
        f"sparse, {title} merged": (make("merged"), 1, lambda n, h, q, k: near(q, k) or far(q, k)),
    }


REACH, GAP = [[2, 2, 5, 0], 7], [1, [1, 2, 3, 1]]

DEFINITIONS: dict[str, tuple[Pattern, int, Definition]] = {
    "strided": (Strided(stride=4), 1, lambda n, h, q, k: abs(q - k) in range(0, T, 4)),
    "own block": (OwnBlock(stride=7), 1, lambda n, h, q, k: q // 7 == k // 7),
    "summaries": (Summaries(stride=5, columns=2), 1, lambda n, h, q, k: k % 5 in (3, 4)),
    "by head": (
        ByHead(parts=[Window(reach=1), Causal()], num_heads=H),
        1,
        lambda n, h, q, k: abs(q - k) <= 1 if h < 2 else k <= q,
    ),
    "by layer": (
        ByLayer(parts=[Window(reach=1), Causal()]),
        2,
        lambda n, h, q, k: abs(q - k) <= 1 if n == 0 else k <= q,
    ),
    "windows": (windows(reach=3, num_heads=H), 1, lambda n, h, q, k: abs(q - k) <= 3),
    "windows by layer and head": (
        windows(reach=REACH, dilation=GAP, num_heads=H, causal=True),
        2,
        lambda n, h, q, k: (
            q - k in range((2, 2, 5, 0)[h] + 1)
            if n == 0
            else q - k in range(0, 7 * (1, 2, 3, 1)[h] + 1, (1, 2, 3, 1)[h])
        ),
    ),
    "diet, dilated": (
        diet(variant="dilated", first=3, base=2, num_layers=4),
        4,
        lambda n, h, q, k: q - k in (0, 2**n, 2 * 2**n),
    ),
    # the mask of the layer below, and what a dilated layer sees (transformer_model.py)
    "diet, dilated memory": (
        diet(variant="dilated_memory", first=3, base=3, num_layers=3),
        3,
        lambda n, h, q, k: (
            q - k in {step * 3**below for below in range(n + 1) for step in range(3)}
        ),
    ),
    "diet, cascade": (
        diet(variant="cascade", first=4, base=2, num_layers=3),
        3,
        lambda n, h, q, k: 0 <= q - k < 4 * 2**n,
    ),
}


for title, make, near, far in [
    ("strided", strided, near_strided, far_strided),
    ("fixed", fixed, near_fixed, far_fixed),
]:
    DEFINITIONS |= define_sparse(title, make, near, far)


@pytest.mark.parametrize("name", DEFINITIONS)
def test_each_layer_and_head_sees_by_the_definition(name: str) -> None:
    pattern, layers, sees = DEFINITIONS[name]
    assert pattern.heads in (1, H)
    assert layers % pattern.layers == 0
    for layer in range(layers):
        dense = pattern.at_layer(layer).dense(row())
        expected = [[[sees(layer, h, q, k) for k in range(T)] for q in range(T)] for h in range(H)]
        assert dense is not None
        assert dense.expand(1, H, T, T)[0].tolist() == expected
        for h in range(pattern.heads):
            alone = pattern.at_layer(layer).of_head(h).dense(row())
            assert alone is not None
            assert alone.expand(1, 1, T, T)[0, 0].tolist() == expected[h]


@pytest.mark.parametrize("name", DEFINITIONS)
def test_as_a_whole_it_sees_what_any_layer_sees(name: str) -> None:
    pattern, layers, sees = DEFINITIONS[name]
    expected = [
        [[any(sees(layer, h, q, k) for layer in range(layers)) for k in range(T)] for q in range(T)]
        for h in range(H)
    ]
    dense = pattern.dense(row())
    assert dense is not None
    assert dense.expand(1, H, T, T)[0].tolist() == expected
    shown = any(expected[h][q][k] for h in range(H) for q in range(T) for k in range(q + 1, T))
    assert pattern.looks_ahead() == shown


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", DEFINITIONS)
@pytest.mark.parametrize("size", [4, 8])
def test_no_block_that_is_needed_is_left_out(name: str, size: int) -> None:
    pattern, layers, sees = DEFINITIONS[name]
    for layer in range(layers):
        blocks = pattern.at_layer(layer).blocks(row(), size)[0]
        for q in range(T):
            for k in range(T):
                if any(sees(layer, h, q, k) for h in range(H)):
                    assert blocks[q // size, k // size]


@pytest.mark.parametrize("variant", ["strided", "fixed"])
def test_two_hops_reach_every_earlier_token(variant: str) -> None:
    """A strided row needs both hops in this order: first to a token near by, then by strides. Of a
    fixed one each block is heard of through the last of its columns; the newest not yet.
    """
    pattern = strided("layers") if variant == "strided" else fixed("layers")
    masks = [pattern.at_layer(layer).dense(row()) for layer in (0, 1)]
    near, far = (mask[0, 0].float() for mask in masks if mask is not None)
    heard = far @ near > 0  # the second layer asks tokens that have seen by the first
    for q in range(T):
        for k in range(q + 1):
            block_is_full = variant == "fixed" and q >= k // 8 * 8 + 7
            if variant == "strided" or block_is_full:
                assert heard[q, k]


def bird(**settings: int) -> BigBird:
    given = {"block": 4, "window": 3, "first": 1, "last": 1, "random": 2, "seed": 0}
    return BigBird(**{**given, "num_layers": 3, **settings})


@pytest.mark.parametrize("length", [80, 79, 45])
def test_big_bird_sees_global_near_and_random_blocks(length: int) -> None:
    count = -(-length // 4)
    for layer in range(3):
        dense = bird().at_layer(layer).dense(row(length))
        assert dense is not None
        mask = dense.expand(1, 1, length, length)[0, 0]
        for i in range(count):
            own = mask[4 * i : 4 * i + 4]
            seen = [bool(own[:, 4 * j : 4 * j + 4].all()) for j in range(count)]
            assert seen == [bool(own[:, 4 * j : 4 * j + 4].any()) for j in range(count)]
            certain = {j for j in range(count) if abs(i - j) <= 1 or {i, j} & {0, count - 1}}
            assert certain <= {j for j in range(count) if seen[j]}
            assert sum(seen) == min(count, len(certain) + 2)


def test_random_blocks_depend_on_seed_and_layer_alone() -> None:
    def drawn(pattern: BigBird, layer: int, length: int = 160) -> list[list[bool]]:
        dense = pattern.at_layer(layer).dense(row(length))
        assert dense is not None
        return dense[0, 0].tolist()

    assert drawn(bird(), 1) == drawn(bird(), 1)
    torch.manual_seed(1)  # no generator of torch decides
    assert drawn(bird(), 1) == drawn(bird(num_layers=12), 1)
    assert drawn(bird(), 1) != drawn(bird(), 2)
    assert drawn(bird(), 1) != drawn(bird(seed=1), 1)
    assert bird().at_layer(2).at_layer(0).picture(8, 4) == bird().at_layer(2).picture(8, 4)


def test_random_blocks_are_spread_evenly() -> None:
    """Of 100 blocks, each is drawn about as often as any other by those that may draw it."""
    counts = torch.zeros(100)
    for seed in range(40):
        pattern = bird(block=1, window=1, first=0, last=0, random=5, seed=seed, num_layers=1)
        dense = pattern.at_layer(0).dense(row(100))
        assert dense is not None
        counts += dense[0, 0].sum(0) - 1  # without itself
    # 40 * 99 draws with probability 5 / 99: mean 200, deviation below 14
    assert bool(((counts - 200).abs() < 5 * 14).all())


def made(**settings: object) -> Pattern:
    pattern: Pattern = build(settings, path="pattern")
    return pattern


HOME = "plmctl.attention.patterns"
SPARSE = {
    "_target_": f"{HOME}.sparse_transformer.sparse_transformer",
    "variant": "strided",
    "stride": 8,
    "factors": "layers",
    "num_heads": 3,
    "num_layers": 2,
}
WINDOWS = {"_target_": f"{HOME}.windows.windows", "reach": 4, "num_heads": 2}
BIRD = {
    "_target_": f"{HOME}.big_bird.BigBird",
    **{"block": 4, "window": 3, "first": 1, "last": 1, "random": 2, "seed": 0, "num_layers": 2},
}
DIET = {"_target_": f"{HOME}.diet.diet", "variant": "dilated", "first": 3, "base": 2}


@pytest.mark.parametrize(
    ("settings", "path", "allowed", "fix"),
    [
        ({**SPARSE, "factors": "heads"}, "pattern.factors", "has no halves", "=layers"),
        ({**SPARSE, "num_layers": 1}, "pattern.factors", "one layer", "=merged"),
        ({**SPARSE, "columns": 2}, "pattern.columns", "null where", "=null"),
        ({**SPARSE, "variant": "fixed"}, "pattern.columns", "1 to 8", "=2"),
        ({**SPARSE, "variant": "fixed", "columns": 9}, "columns", "1 to stride=8", "=2"),
        ({**SPARSE, "stride": 0}, "stride", "1 or more", ""),
        ({**WINDOWS, "reach": [1, [2, 3, 4]]}, "pattern.reach", "one for each head", ".1=4"),
        ({**WINDOWS, "reach": [1, 2], "dilation": [1]}, "pattern.dilation", "2: one", "=1"),
        ({**WINDOWS, "reach": []}, "pattern.reach", "one entry for each layer", ""),
        ({**WINDOWS, "dilation": 0}, "dilation", "1 or more", ""),
        ({**WINDOWS, "reach": -1}, "reach", "0 or more", ""),
        ({**BIRD, "window": 4}, "window", "an odd number", "=5"),
        ({**DIET, "num_layers": 40}, "pattern.base", "power 39", "=1"),
    ],
)
def test_wrong_settings_are_refused_with_a_fix(
    settings: dict[str, object], path: str, allowed: str, fix: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        made(**settings)
    assert path in str(caught.value)
    assert allowed in str(caught.value)
    assert fix in (caught.value.fix or "")


def test_heads_that_do_not_divide_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"3 patterns': as many patterns as divide"):
        ByHead(parts=[Causal(), Window(reach=1), Window(reach=2)], num_heads=4)
    with pytest.raises(ConfigError, match="the same in all heads and layers"):
        ByHead(parts=[ByLayer(parts=[Causal(), Window(reach=1)])], num_heads=4)


LONG = 4096
STRIDED_LONG = sparse_transformer(
    variant="strided", stride=64, factors="merged", num_heads=H, num_layers=1
)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("pattern", "most"),
    [
        # a window of 64 either side needs 129 + 127 keys for 128 queries
        (windows(reach=64, num_heads=H), 0.065),
        # a dilated head costs about as much as one without gaps
        (windows(reach=64, dilation=[[1, 4, 4, 16]], num_heads=H), 0.09),
        (Causal() & Strided(stride=64), 0.02),  # 64 rows of 64 tokens
        (STRIDED_LONG, 0.085),
        # 8 of 64 columns for half of the pairs
        (
            sparse_transformer(
                variant="fixed", stride=64, columns=8, factors="merged", num_heads=H, num_layers=1
            ),
            0.125,
        ),
        # 8 of 64 blocks, and two that see all
        (
            BigBird(block=64, window=3, first=1, last=1, random=3, seed=0, num_layers=1).at_layer(
                0
            ),
            0.17,
        ),
        (diet(variant="dilated", first=3, base=2, num_layers=8).at_layer(7), 0.02),
        (diet(variant="dilated_memory", first=3, base=2, num_layers=8).at_layer(7), 0.02),
    ],
    ids=["windows", "gaps by head", "strides", "strided", "fixed", "big bird", "diet", "memory"],
)
def test_few_scores_are_computed_in_long_rows(pattern: Pattern, most: float) -> None:
    kernel = Auto()
    assert kernel.choose(pattern, LONG) is kernel.banded
    seen = pattern.dense(row(LONG))
    assert seen is not None
    share = kernel.share(pattern, LONG)
    needed = float(seen.float().mean())
    assert needed <= share <= most
    assert f"{share:.0%} of the scores" in kernel.remark(pattern, LONG)


def test_plans_have_the_structure_of_the_pattern() -> None:
    seq, kernel = row(LONG), Banded()
    by_head = kernel.plan(windows(reach=64, dilation=[[1, 4, 4, 16]], num_heads=H), seq)
    assert isinstance(by_head, HeadsPlan)
    assert [heads.tolist() for heads in by_head.heads] == [[0], [1, 2], [3]]
    gaps = [plan.gap for plan in by_head.plans if isinstance(plan, BlockPlan)]
    assert gaps == [1, 4, 16]
    merged = kernel.plan(STRIDED_LONG, seq)
    assert isinstance(merged, ViewsPlan)
    assert [plan.gap for plan in merged.plans] == [1, 64]


def test_numbers_of_masks_grow_with_the_length() -> None:
    """Twice the row, twice the numbers that a plan keeps: nothing of size T x T."""

    def kept(length: int) -> int:
        pattern = windows(reach=64, dilation=[[1, 4, 4, 16]], num_heads=H, causal=True)
        plan = Banded().plan(pattern, row(length))
        assert isinstance(plan, HeadsPlan)
        masks = [
            group.mask.mask
            for part in plan.plans
            if isinstance(part, BlockPlan)
            for group in part.classes
        ]
        return sum(mask.numel() for mask in masks if mask is not None)

    assert kept(8192) <= 2.1 * kept(4096)


def test_idle_layers_are_named() -> None:
    told = "forbids nothing in rows of 32 tokens, the longest here"
    assert remark_on(windows(reach=[40, 4, 31], num_heads=H), 32) == f"{told}, in layers 1, 3"
    assert (
        remark_on(windows(reach=[40, 31], num_heads=H), 32) == f"{told}: the same as pattern=full"
    )
    assert remark_on(windows(reach=[3, 4], num_heads=H), 32) == ""
    assert (
        remark_on(bird(num_layers=2), 16) == f"{told.replace('32', '16')}: the same as pattern=full"
    )
    assert remark_on(Dilated(reach=3, dilation=[2]), 16) == ""
