"""The layout grammar and what it builds."""

from __future__ import annotations

import pytest

from plmctl.core.errors import ConfigError
from plmctl.nn.layout import Step, count_copies, make_sandwich, parse


def _read(layout: str, **share: int) -> str:
    return " ".join(
        f"{s.letter}{s.copy}{'.' if s.ends else ''}" for s in parse(layout, share=share)
    )


@pytest.mark.parametrize(
    ("layout", "steps"),
    [
        ("af*3", "a0 f0. a1 f1. a2 f2."),
        ("af@3", "a0 f0. a0 f0. a0 f0."),
        ("af", "a0 f0."),
        ("a*2 af*1 f*2", "a0. a1. a2 f0. f1. f2."),
        ("af@2 af*2", "a0 f0. a0 f0. a1 f1. a2 f2."),
        ("gbaf*2", "g0 b0 a0 f0. g1 b1 a1 f1."),
        ("aaf@2", "a0 a1 f0. a0 a1 f0."),
    ],
)
def test_layout_reads(layout: str, steps: str) -> None:
    assert _read(layout) == steps


def test_share_keeps_copies_for_neighbours() -> None:
    assert _read("af*4", a=1) == "a0 f0. a0 f1. a0 f2. a0 f3."
    assert _read("af*4", a=2, f=1) == "a0 f0. a0 f0. a1 f0. a1 f0."
    assert count_copies(parse("af*4", share={"a": 2})) == {"a": 2, "f": 4}


def test_same_weights_once_is_own_weights_once() -> None:
    assert parse("af@1") == parse("af*1") == [Step("a", 0, False), Step("f", 0, True)]


@pytest.mark.parametrize("layout", ["", "  ", "(af)*12", "af*", "af*0", "af-2", "12"])
def test_bad_layouts_are_refused(layout: str) -> None:
    with pytest.raises(ConfigError, match=r"model\.stack\.layout"):
        parse(layout)


@pytest.mark.parametrize("share", [{"a": 0}, {"a": 3}, {"a": 5}, {"v": 1}])
def test_bad_share_is_refused(share: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=r"model\.stack\.share"):
        parse("af*4", share=share)


@pytest.mark.parametrize(
    ("layout", "k", "sandwich"),
    [
        ("af*3", 0, "af*3"),
        ("af*3", 1, "a*1 af*2 f*1"),
        ("af*16", 6, "a*6 af*10 f*6"),
        ("acf*6", 2, "ac*2 acf*4 f*2"),
        ("a|wf*4", 1, "a|w*1 a|wf*3 f*1"),
        ("af*4 f*2", 0, "af*4 f*2"),
    ],
)
def test_sandwiches(layout: str, k: int, sandwich: str) -> None:
    assert make_sandwich(layout, k) == sandwich


@pytest.mark.parametrize("n", [2, 3, 16])
def test_a_sandwich_is_the_papers_string(n: int) -> None:
    """s^k (sf)^(n-k) f^k, k up to n - 1, which is s^n f^n: the same cells in another order."""
    for k in range(n):
        steps = parse(make_sandwich(f"af*{n}", k))
        assert "".join(step.letter for step in steps) == "a" * k + "af" * (n - k) + "f" * k
        assert count_copies(steps) == {"a": n, "f": n}
        for letter in "af":  # the numbers of the copies count up
            assert [s.copy for s in steps if s.letter == letter] == list(range(n))


@pytest.mark.parametrize(
    ("layout", "k", "said"),
    [
        ("af*3", 3, "sandwich=3: 0 to 2 in the layout af"),
        ("af*3", -1, "0 to 2"),
        ("af@3", 1, "0, where the layout af@3 is no group of two cells or more"),
        ("af", 1, "is no group"),
        ("a*2 af*3", 1, "is no group"),
        ("a|f*3", 1, "is no group of two cells"),
    ],
)
def test_layouts_that_make_no_sandwich(layout: str, k: int, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        make_sandwich(layout, k)
