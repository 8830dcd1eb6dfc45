"""Windows that grow from layer to layer, against the tables of the paper."""

from __future__ import annotations

import pytest
import torch

from plmctl.attention.patterns.base import Pattern, make_row
from plmctl.attention.patterns.growing import growing
from plmctl.core.errors import ConfigError

LENGTH = 600


def small(**more: int) -> Pattern:
    """The first stage of the small model: 12 layers of 8 heads."""
    settings = {"first": 32, "last": 512, "gaps": 3, "heads": 2, "num_heads": 8, "num_layers": 12}
    return growing(**{**settings, **more}, causal=True)


def measure(pattern: Pattern, layer: int, head: int) -> tuple[int, int]:
    """(keys before the query, distance from one to the next) of the last query of a row."""
    part = pattern.at_layer(layer)
    allowed = part.bind(make_row(part, torch.zeros(4 * LENGTH, dtype=torch.long)))
    keys = torch.arange(4 * LENGTH).view(1, 1, 1, -1)
    query, zero = (
        torch.full((1, 1, 1, 1), 4 * LENGTH - 1),
        torch.zeros(1, 1, 1, 1, dtype=torch.long),
    )
    seen = allowed(zero, zero + head, query, keys).flatten().nonzero()[:, 0]
    assert seen[-1] == 4 * LENGTH - 1
    return len(seen) - 1, int(seen[-1] - seen[-2])


def test_the_small_model_of_table_12() -> None:
    """Windows of 32 at the bottom and 512 at the top; gaps of 0 in layers 0 to 5, 1 in 6 and 7, 2
    in 8 and 9, 3 in 10 and 11, on two heads.
    """
    pattern = small()
    windows = [measure(pattern, layer, 0)[0] for layer in range(12)]
    assert (windows[0], windows[-1]) == (32, 512)
    assert windows == sorted(windows)
    assert [measure(pattern, layer, 0)[1] for layer in range(12)] == [1] * 12
    assert [measure(pattern, layer, 5)[1] for layer in range(12)] == [1] * 12
    for head in (6, 7):
        steps = [measure(pattern, layer, head)[1] for layer in range(12)]
        assert [step - 1 for step in steps] == [0] * 6 + [1, 1, 2, 2, 3, 3]


def test_the_large_model_of_table_12() -> None:
    """Gaps of 0 in layers 0 to 14, 1 in 15 to 19, 2 in 20 to 24, 3 in 25 to 29."""
    pattern = small(num_layers=30)
    steps = [measure(pattern, layer, 7)[1] for layer in range(30)]
    assert [step - 1 for step in steps] == [0] * 15 + [1] * 5 + [2] * 5 + [3] * 5


def test_stages_divide_windows() -> None:
    whole, half = small(first=64, last=1024), small(first=64, last=1024, divide=2)
    for layer in (0, 5, 11):
        assert 2 * measure(half, layer, 0)[0] == measure(whole, layer, 0)[0]


def test_windows_shrink_or_stay_the_same() -> None:
    """The other arms of table 4."""
    shrinking, same = small(first=512, last=32, gaps=0), small(first=230, last=230, gaps=0)
    windows = [measure(shrinking, layer, 7)[0] for layer in range(12)]
    assert windows == [measure(small(gaps=0), layer, 7)[0] for layer in reversed(range(12))]
    assert {measure(same, layer, 7) for layer in range(12)} == {(230, 1)}


def test_one_layer_and_no_causality() -> None:
    pattern = growing(first=4, last=4, gaps=3, heads=1, causal=False, num_heads=2, num_layers=1)
    assert pattern.looks_ahead()
    assert pattern.reach() == (4, 4)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"last": 100}, r"pattern.last=100: 32 .* power of two\n  fix: pattern.last=128"),
        ({"heads": 9}, "pattern.heads=9: at most 8"),
        ({"divide": 5}, r"pattern.first=32: a multiple of 5.*\n  fix: pattern.first=35"),
    ],
)
def test_what_does_not_fit_is_refused(settings: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        small(**settings)
