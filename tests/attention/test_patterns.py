"""Every pattern against a double Python loop written from its definition, the algebra, and the
FlexAttention signature.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from plmctl.attention.patterns.anticausal import Anticausal
from plmctl.attention.patterns.base import And, Full, Pattern
from plmctl.attention.patterns.by_segment import BySegment
from plmctl.attention.patterns.causal import Causal
from plmctl.attention.patterns.dilated import Dilated
from plmctl.attention.patterns.documents import Documents
from plmctl.attention.patterns.global_tokens import Global
from plmctl.attention.patterns.order import Order
from plmctl.attention.patterns.others import Others
from plmctl.attention.patterns.padding import Padding
from plmctl.attention.patterns.prefix import CausalWithPrefix
from plmctl.attention.patterns.tree import Tree
from plmctl.attention.patterns.window import Window
from plmctl.core.batch import Seq
from plmctl.core.errors import ConfigError

T = 11
LENGTH = torch.tensor([11, 7])
DOCUMENT = torch.tensor([[0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2], [0, 0, 1, 1, 1, 1, 1, -1, -1, -1, -1]])
SEGMENT = torch.tensor([[0] * 5 + [1] * 6, [0] * 3 + [1] * 8])
ORDER = torch.tensor([[0, 3, 0, 0, 1, 2, 0, 5, 4, 0, 6], [2, 0, 0, 1, 0, 3, 0, 0, 0, 0, 0]])
WORD = torch.tensor([[0, 1, 1, 1, 1, 0, 2, 2, 0, 0, 0], [1, 1, 1, 0, 2, 2, 2, 2, 0, 0, 0]])
BRANCH = torch.tensor([[0, 0, 1, 1, 2, 0, 0, 3, 0, 0, 0], [0, 1, 2, 0, 0, 0, 3, 3, 0, 0, 0]])
SEQ = Seq(
    torch.zeros(2, T, dtype=torch.long),
    LENGTH,
    {"document": DOCUMENT, "segment": SEGMENT, "order": ORDER, "word": WORD, "branch": BRANCH},
)

# pattern, and its definition: may query q of row b in head h see key k?
TABLE: list[tuple[Pattern, Callable[[int, int, int, int], bool]]] = [
    (Causal(), lambda b, h, q, k: k <= q),
    (Anticausal(), lambda b, h, q, k: k >= q),
    (Others(), lambda b, h, q, k: k != q),
    (Others() & Causal(), lambda b, h, q, k: k < q),
    (Window(reach=2), lambda b, h, q, k: -2 <= q - k <= 2),
    (Dilated(reach=2, dilation=[3]), lambda b, h, q, k: k - q in (-6, -3, 0, 3, 6)),
    (
        Dilated(reach=2, dilation=[1, 2]),
        lambda b, h, q, k: (k - q) in [d * (h + 1) for d in (-2, -1, 0, 1, 2)],
    ),
    (Padding(), lambda b, h, q, k: k < int(LENGTH[b])),
    (
        Tree(),
        lambda b, h, q, k: bool(
            BRANCH[b, q] == BRANCH[b, k]
            or (WORD[b, q] == WORD[b, k] > 0 and 0 in (BRANCH[b, q], BRANCH[b, k]))
        ),
    ),
    (Documents(), lambda b, h, q, k: bool(DOCUMENT[b, q] == DOCUMENT[b, k])),
    (CausalWithPrefix(), lambda b, h, q, k: (k < (5, 3)[b]) if q < (5, 3)[b] else k <= q),
    (Order(), lambda b, h, q, k: bool(ORDER[b, k] <= ORDER[b, q])),
    (Order(strict=True), lambda b, h, q, k: bool(ORDER[b, k] < ORDER[b, q])),
    (
        Causal() & Padding() & Documents(),
        lambda b, h, q, k: k <= q and k < (11, 7)[b] and bool(DOCUMENT[b, q] == DOCUMENT[b, k]),
    ),
    (
        Window(reach=1) | Dilated(reach=1, dilation=[4, 5]),
        lambda b, h, q, k: abs(q - k) <= 1 or abs(q - k) == 4 + h,
    ),
    (~Causal(), lambda b, h, q, k: k > q),
    (Global(tokens=2), lambda b, h, q, k: q < 2 or k < 2),
    (Global(tokens=0), lambda b, h, q, k: False),
    (Window(reach=1) | Global(tokens=0), lambda b, h, q, k: abs(q - k) <= 1),
    (Window(reach=1) | Global(tokens=1), lambda b, h, q, k: abs(q - k) <= 1 or q == 0 or k == 0),
    (
        BySegment(parts=[Causal(), Window(reach=1)]),
        lambda b, h, q, k: k <= q if SEGMENT[b, q] == 0 else abs(q - k) <= 1,
    ),
]


def _loop(
    allowed: Callable[[int, int, int, int], bool], heads: int, queries: range
) -> torch.Tensor:
    return torch.tensor(
        [
            [[[allowed(b, h, q, k) for k in range(T)] for q in queries] for h in range(heads)]
            for b in range(2)
        ]
    )


@pytest.mark.parametrize(("pattern", "allowed"), TABLE, ids=lambda x: type(x).__name__)
@pytest.mark.parametrize("offset", [0, 4])
def test_dense_is_the_definition(
    pattern: Pattern, allowed: Callable[[int, int, int, int], bool], offset: int
) -> None:
    dense = pattern.dense(SEQ, k_offset=offset)
    assert dense is not None
    assert dense.dtype == torch.bool
    expected = _loop(allowed, 2, range(offset, T))
    assert torch.equal(dense.expand(expected.shape), expected)


@pytest.mark.parametrize(("pattern", "allowed"), TABLE, ids=lambda x: type(x).__name__)
def test_q_index_picks_rows_of_the_dense_mask(
    pattern: Pattern, allowed: Callable[[int, int, int, int], bool]
) -> None:
    index = torch.tensor([[3, 9, 0], [6, 1, 1]])
    dense = pattern.dense(SEQ, q_index=index)
    assert dense is not None
    every = _loop(allowed, 2, range(T))
    expected = torch.stack([every[b, :, index[b]] for b in range(2)])
    assert torch.equal(dense.expand(expected.shape), expected)


@pytest.mark.parametrize("pattern", [p for p, _ in TABLE], ids=lambda x: type(x).__name__)
def test_bind_is_a_flex_attention_mask_mod(pattern: Pattern) -> None:
    from torch.nn.attention.flex_attention import create_mask

    dense = pattern.dense(SEQ)
    assert dense is not None
    made = create_mask(pattern.bind(SEQ), 2, 2, T, T, device="cpu")
    assert torch.equal(dense.expand(made.shape), made)


def test_algebra_laws() -> None:
    a, b, c = Causal(), Window(reach=2), Documents()

    def same(left: Pattern, right: Pattern) -> bool:
        x, y = left.dense(SEQ), right.dense(SEQ)
        assert x is not None
        assert y is not None
        return bool((x == y).all())

    assert same(a & b, b & a)
    assert same(a & (b & c), (a & b) & c)
    assert same(~(a & b), ~a | ~b)
    assert same(a & (b | c), (a & b) | (a & c))
    assert same(~~a, a)
    assert same(a & Full(), a)
    assert len(((a & b) & (c & a)).parts) == 4


def test_what_allows_everything_is_left_out() -> None:
    full = Seq(torch.zeros(2, T, dtype=torch.long), torch.tensor([T, T]), full=True)
    assert (Full() & Padding() & Documents()).dense(full) is None
    assert isinstance((Causal() & Padding() & Documents()).simplify(full), Causal)
    assert (Full() | Causal()).dense(full) is None
    assert isinstance((Causal() & Padding() & Documents()).simplify(SEQ), And)


def test_sizes_are_one_where_the_pattern_does_not_depend() -> None:
    assert Causal().dense(SEQ).shape == (1, 1, T, T)  # type: ignore[union-attr]
    assert Padding().dense(SEQ).shape == (2, 1, 1, T)  # type: ignore[union-attr]
    assert Dilated(reach=1, dilation=[1, 2]).dense(SEQ).shape == (1, 2, T, T)


def test_static_and_needs_follow_the_parts() -> None:
    assert (Causal() & Window(reach=1)).static
    assert not (Causal() | Padding()).static
    assert (~CausalWithPrefix() & Causal()).needs == {"tracks.segment"}


class Far(Pattern):
    """A pattern of somebody's own that says nothing of its reach: one place far away is seen."""

    def predicate(self, seq: Seq) -> Callable[..., torch.Tensor]:
        return lambda b, h, q, k: (k <= q) | (k == 5000)


AHEAD: list[tuple[Pattern, bool]] = [
    (Full(), True),
    (Causal(), False),
    (Anticausal(), True),
    (Window(reach=0), False),
    (Window(reach=1), True),
    (Dilated(reach=1, dilation=[1500]), True),
    (Dilated(reach=2, dilation=[70_000]), True),
    (Causal() & Dilated(reach=1, dilation=[1500]), False),
    (Causal() | Dilated(reach=1, dilation=[1, 1500]), True),
    (~Window(reach=2000) & Anticausal(), True),
    (~Anticausal(), False),
    (~(Window(reach=3000) | Causal()), True),
    (Dilated(reach=3, dilation=[3]) & Dilated(reach=3, dilation=[5]), False),
    (Dilated(reach=5, dilation=[3]) & Dilated(reach=3, dilation=[5]), True),  # they meet at 15
    (Causal() & Padding() & Documents() & Order(), False),
    (Padding() & Documents(), True),
    (Far(), True),
    (Causal() & Far(), False),
]


@pytest.mark.parametrize(("pattern", "ahead"), AHEAD, ids=lambda x: type(x).__name__)
def test_looking_ahead_is_found_however_far(pattern: Pattern, ahead: bool) -> None:
    assert pattern.looks_ahead() is ahead


def test_a_prefix_looks_ahead_where_it_is_read_alone() -> None:
    assert CausalWithPrefix().looks_ahead(0)
    assert not CausalWithPrefix().looks_ahead(1)


def test_patterns_are_composed_in_yaml() -> None:
    from plmctl.config.build import build

    home = "plmctl.attention.patterns"
    near = {"_target_": f"{home}.window.Window", "reach": 1}
    gaps = {"_target_": f"{home}.dilated.Dilated", "reach": 1, "dilation": [4, 5]}
    both = {"_target_": f"{home}.base.Or", "parts": [near, gaps]}
    inside = {
        "_target_": f"{home}.base.And",
        "parts": [{"_target_": f"{home}.causal.Causal"}, both],
    }
    made, expected = (
        build(inside, path="pattern"),
        Causal() & (Window(reach=1) | Dilated(reach=1, dilation=[4, 5])),
    )
    assert torch.equal(made.dense(SEQ), expected.dense(SEQ))  # type: ignore[arg-type]
    apart = build({"_target_": f"{home}.base.Not", "part": near}, path="pattern")
    assert torch.equal(apart.dense(SEQ), (~Window(reach=1)).dense(SEQ))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"pattern\.parts=\[\]: at least one pattern"):
        build({**both, "parts": []}, path="pattern")


@pytest.mark.parametrize(
    "make",
    [
        lambda: Window(reach=-3),
        lambda: Window(reach=10**12),
        lambda: Dilated(reach=-1, dilation=[1]),
        lambda: Dilated(reach=1, dilation=[0]),
        lambda: Dilated(reach=1, dilation=[]),
        lambda: Dilated(reach=10**6, dilation=[10**6]),
    ],
)
def test_windows_that_cannot_be_are_refused(make: Callable[[], Pattern]) -> None:
    with pytest.raises(ConfigError, match=r"reach|dilation"):
        make()
