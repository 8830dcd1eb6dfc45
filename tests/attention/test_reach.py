"""What a pattern states of itself, against the mask that its predicate makes: offsets, reach, who
is looked ahead at, blocks, who is heard of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import pytest
import torch

from plmctl.attention.patterns.anticausal import Anticausal
from plmctl.attention.patterns.base import Full, Pattern, Reach, make_row
from plmctl.attention.patterns.by_segment import BySegment
from plmctl.attention.patterns.causal import Causal
from plmctl.attention.patterns.dilated import Dilated
from plmctl.attention.patterns.documents import Documents
from plmctl.attention.patterns.global_tokens import Global
from plmctl.attention.patterns.hops import reaches_all
from plmctl.attention.patterns.offsets import Offsets
from plmctl.attention.patterns.order import Order
from plmctl.attention.patterns.padding import Padding
from plmctl.attention.patterns.prefix import CausalWithPrefix
from plmctl.attention.patterns.window import Window
from plmctl.core.batch import Seq
from plmctl.core.errors import ConfigError

RANGE = range(-30, 31)
SETS: dict[str, tuple[Offsets, Callable[[int], bool]]] = {
    "all": (Offsets.everything(), lambda x: True),
    "none": (~Offsets.everything(), lambda x: False),
    "past": (Offsets.between(None, 0), lambda x: x <= 0),
    "future": (Offsets.between(3, None), lambda x: x >= 3),
    "band": (Offsets.between(-4, 2), lambda x: -4 <= x <= 2),
    "gaps": (Offsets.each(np.array([-9, -3, 0, 3, 9])), lambda x: x in (-9, -3, 0, 3, 9)),
    "touching": (Offsets.each(np.arange(-2, 6)), lambda x: -2 <= x <= 5),
}


def members(offsets: Offsets) -> list[bool]:
    return offsets.contains(np.array(RANGE)).tolist()


@pytest.mark.parametrize("one", SETS)
@pytest.mark.parametrize("other", SETS)
def test_offsets_are_sets(one: str, other: str) -> None:
    (a, in_a), (b, in_b) = SETS[one], SETS[other]
    assert members(a) == [in_a(x) for x in RANGE]
    assert members(~a) == [not in_a(x) for x in RANGE]
    assert members(a & b) == [in_a(x) and in_b(x) for x in RANGE]
    assert members(a | b) == [in_a(x) or in_b(x) for x in RANGE]
    for low in range(-12, 12, 5):
        for width in (0, 1, 7):
            expected = any(in_a(x) for x in range(low, low + width + 1))
            assert bool(a.meets(np.array(low), np.array(low + width))) == expected
    nothing = a & ~a
    assert nothing.is_empty()
    with pytest.raises(ValueError, match="empty"):
        nothing.least()


def test_neighbours_make_one_interval() -> None:
    assert Offsets.each(np.arange(-2, 6)).steps.tolist() == [-2, 6]


REACHES: list[tuple[Pattern, Reach]] = [
    (Full(), Reach(None, None)),
    (Causal(), Reach(None, 0)),
    (Anticausal(), Reach(0, None)),
    (Window(reach=7), Reach(7, 7)),
    (Causal() & Window(reach=7), Reach(7, 0)),
    (Causal() | Window(reach=7), Reach(None, 7)),
    (Dilated(reach=3, dilation=[1, 500]), Reach(1500, 1500)),
    (Window(reach=9) & Dilated(reach=3, dilation=[4]), Reach(8, 8)),
    (Dilated(reach=3, dilation=[3]) & Dilated(reach=3, dilation=[5]), Reach(0, 0)),
    (~Window(reach=2), Reach(None, None)),
    (~Anticausal() & Window(reach=4), Reach(4, 0)),
    (Window(reach=4) & Padding() & Documents() & Order(), Reach(4, 4)),
    (Window(reach=4) | Global(tokens=1), Reach(None, None)),
    (Causal() & (Window(reach=4) | Global(tokens=1)), Reach(None, 0)),
    (Causal() & ~Causal(), Reach(0, 0)),
    (~Documents(), Reach(None, None)),
]


@pytest.mark.parametrize(("pattern", "reach"), REACHES, ids=lambda x: type(x).__name__)
def test_reach_follows_the_algebra(pattern: Pattern, reach: Reach) -> None:
    assert pattern.reach() == reach


PATTERNS: list[Pattern] = [
    *(pattern for pattern, _ in REACHES),
    CausalWithPrefix(),
    CausalWithPrefix() & Window(reach=5),
    BySegment(parts=[Window(reach=3), Causal(), CausalWithPrefix(source=1)]),
    Global(tokens=3) & Causal(),
    ~(Window(reach=3) | Global(tokens=1)),
]


def rows(length: int, *, packed: bool) -> Seq:
    """Two rows: the first full, the second padded; documents of several lengths, three segments."""
    g = torch.Generator().manual_seed(length)
    document = (torch.rand(2, length, generator=g) < 0.08).cumsum(1)
    begins = torch.cat([torch.ones(2, 1, dtype=torch.bool), document[:, 1:] != document[:, :-1]], 1)
    place = torch.arange(length)
    position = place - (place * begins).cummax(1)[0]
    real = place < torch.tensor([length, 2 * length // 3])[:, None]
    tracks = {
        "segment": torch.arange(length).mul(3).div(length, rounding_mode="floor").expand(2, -1),
        "order": torch.rand(2, length, generator=g).argsort(1),
    }
    if packed:
        tracks |= {"document": document.masked_fill(~real, -1), "position": position}
    return Seq(torch.zeros(2, length, dtype=torch.long), real.sum(1), tracks)


def everything(pattern: Pattern, seq: Seq) -> torch.Tensor:
    """[B, H, T, T]."""
    length, dense = seq.ids.shape[1], pattern.dense(seq)
    dense = torch.ones(1, 1, 1, 1, dtype=torch.bool) if dense is None else dense
    return dense.expand(len(seq.ids), pattern.heads, length, length)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda x: type(x).__name__)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("size", [4, 16])
def test_no_block_that_is_needed_is_left_out(pattern: Pattern, packed: bool, size: int) -> None:
    seq = rows(61, packed=packed)
    left = (pattern & Padding() & Documents()).simplify(seq)
    seen = everything(left, seq).any(1)
    needed = torch.nn.functional.pad(seen, (0, -61 % size, 0, -61 % size))
    needed = needed.unflatten(2, (-1, size)).unflatten(1, (-1, size)).any(4).any(2)
    assert bool((left.blocks(seq, size) | ~needed).all())


@pytest.mark.parametrize(
    "pattern",
    [
        Causal(),
        Window(reach=9),
        Causal() & Window(reach=9),
        Dilated(reach=2, dilation=[16]),
        Window(reach=9) | Global(tokens=1),
        ~Window(reach=9),
    ],
    ids=lambda x: type(x).__name__,
)
def test_no_block_is_computed_in_vain(pattern: Pattern) -> None:
    seq = rows(64, packed=False)
    seen = everything(pattern, seq).any(1)
    needed = seen.unflatten(2, (-1, 8)).unflatten(1, (-1, 8)).any(4).any(2)
    assert torch.equal(pattern.blocks(seq, 8).expand_as(needed), needed)


def test_documents_skip_the_blocks_of_others() -> None:
    document = torch.tensor([[0] * 8 + [1] * 8 + [2] * 12 + [-1] * 4])
    seq = Seq(document, torch.tensor([28]), {"document": document})
    blocks = Documents().blocks(seq, 8)[0]
    assert blocks.tolist() == [
        [True, False, False, False],
        [False, True, False, False],
        [False, False, True, True],
        [False, False, True, True],
    ]


@pytest.mark.sampled(5)
@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda x: type(x).__name__)
@pytest.mark.parametrize("segment", [0, 1])
def test_looking_ahead_is_what_the_mask_shows(pattern: Pattern, segment: int) -> None:
    seq = make_row(pattern, torch.full([1600], segment))
    shown = bool(everything(pattern, seq).any(1).any(0).triu(1).any())
    stated = pattern.looks_ahead(segment)
    assert stated == shown or (stated and not pattern.sight(segment).exact)


def closure(pattern: Pattern, seq: Seq, place: int) -> bool:
    sees = everything(pattern, seq)[0].any(0)
    heard = torch.zeros(len(sees), dtype=torch.bool)
    heard[place] = True
    for _ in range(len(sees)):
        heard = sees[heard].any(0) | heard
    return bool(heard.all())


@pytest.mark.sampled(5)
@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda x: type(x).__name__)
@pytest.mark.parametrize("place", [0, -1])
def test_who_is_heard_of(pattern: Pattern, place: int) -> None:
    half = torch.tensor([0] * 50 + [1] * 50)
    expected = closure(pattern, make_row(pattern, half), place)
    assert reaches_all(pattern, place, (0, 1), 100) == expected


def test_a_dilation_longer_than_a_row_is_not_heard_through() -> None:
    far = Dilated(reach=1, dilation=[1500])
    assert far.looks_ahead()
    assert not reaches_all(far, 0, (0, 0), 1000)
    assert reaches_all((far | Window(reach=1)), 0, (0, 0), 3000)


def test_parts_that_tell_other_numbers_of_heads_apart_do_not_fit() -> None:
    with pytest.raises(ConfigError, match="the same number of heads"):
        Dilated(reach=1, dilation=[1, 2]) & Dilated(reach=1, dilation=[1, 2, 3])


def test_a_pattern_draws_itself() -> None:
    drawn = (Causal() & Window(reach=1) | Global(tokens=1)).picture(5)
    assert drawn.splitlines() == ["#####", "##...", "###..", "#.##.", "#..##"]
    assert Full().picture(2) == "##\n##"
    assert Window(reach=3).picture(3, size=4).splitlines() == ["#+.", "+#+", ".+#"]
    # with cells of a token each all see all; the fewest tokens that show a difference are drawn
    assert Window(reach=8).picture(3) == Window(reach=8).picture(3, size=4)


def heads(seen: Iterable[Offsets]) -> list[list[bool]]:
    return [members(offsets) for offsets in seen]


def test_each_head_has_its_own_offsets() -> None:
    both = Dilated(reach=2, dilation=[1, 4]) & Window(reach=6)
    assert heads(both.sight().heads) == [
        [abs(x) <= 2 for x in RANGE],
        [x in (-4, 0, 4) for x in RANGE],
    ]
