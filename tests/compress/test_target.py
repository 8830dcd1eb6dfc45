"""Targets: what a user types, and how far a model reaches."""

from __future__ import annotations

import pytest

from plmctl.compress.target import Target, parse, spell_amount
from plmctl.core.errors import ConfigError


@pytest.mark.parametrize(
    ("word", "target"),
    [
        ("latency:8x", Target("latency", times=8)),
        ("latency:2.5X", Target("latency", times=2.5)),
        ("latency:5ms", Target("latency", most=5)),
        ("latency:300us", Target("latency", most=0.3)),
        ("latency:1s", Target("latency", most=1000)),
        ("size:4x", Target("size", times=4)),
        ("size:5MB", Target("size", most=5e6)),
        ("size:750kb", Target("size", most=750e3)),
        ("flops:20M", Target("flops", most=20e6)),
        ("flops:2e6", Target("flops", most=2e6)),
        ("memory:2x", Target("memory", times=2)),
        ("memory:1GB", Target("memory", most=1e9)),
    ],
)
def test_a_target_is_a_ratio_or_an_amount(word: str, target: Target) -> None:
    assert parse(word) == target


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("ltency:8x", "did you mean 'latency'?"),
        ("speed:8x", "latency:8x, size:5MB, flops:4x, memory:4x"),
        ("latency", "fix: target=latency:8x"),
        ("latency:8", "with ms, us, s behind it"),
        ("latency:fast", "latency:<times>x"),
        ("latency:1x", "more than 1"),
        ("latency:-3x", "more than 1"),
        ("size:0MB", "KB, MB, GB, B behind it"),
        ("size:5TB", "fix: target=size:5MB"),
        ("", "latency:8x"),
    ],
)
def test_a_wrong_target_is_answered_with_the_allowed_ones(word: str, said: str) -> None:
    with pytest.raises(ConfigError, match="target") as error:
        parse(word)
    assert said in str(error.value)


def test_the_reach_is_1_where_a_target_is_just_met() -> None:
    assert Target("latency", times=8).reach(0.5, 8.0) == 1
    assert Target("latency", times=8).reach(0.5, 4.0) == 0.5
    assert Target("size", most=5e6).reach(5e6, 1.0) == 1
    assert Target("size", most=5e6).reach(10e6, 100.0) == 0.5


@pytest.mark.parametrize(
    ("quantity", "amount", "text"),
    [
        ("latency", 0.25, "250 us"),
        ("latency", 5.0, "5 ms"),
        ("latency", 2500.0, "2.5 s"),
        ("size", 5.25e6, "5.25 MB"),
        ("flops", 900.0, "900"),
        ("flops", 21.7e6, "21.7 M"),
        ("memory", 0.0, "0 B"),
    ],
)
def test_amounts_are_spelled_as_they_are_typed(quantity: str, amount: float, text: str) -> None:
    assert spell_amount(quantity, amount) == text
    if amount:
        typed = parse(f"{quantity}:{text.replace(' ', '')}").most
        assert typed == pytest.approx(amount)
