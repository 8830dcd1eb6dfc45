"""Patterns of a plug-in against what they state to see."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from plmctl.artifacts.assemble import build_model
from plmctl.attention.kernels.bands import Band
from plmctl.attention.patterns.base import Not, Pattern
from plmctl.attention.patterns.causal import Causal
from plmctl.attention.patterns.offsets import Offsets, Sight
from plmctl.attention.patterns.own_block import OwnBlock
from plmctl.attention.patterns.stated import check_sight
from plmctl.config.build import build
from plmctl.config.compose import compose
from plmctl.core.batch import Seq
from plmctl.core.errors import UsageError
from plmctl.runs.contract.stand_in import TINY

See = Callable[[Seq, Tensor, Tensor, Tensor, Tensor], Tensor]
EVERY, NEAR = Offsets.everything(), Offsets.between(-5, 5)


class Own(Pattern):
    """A pattern of these values; its module is not plmctl's."""

    def __init__(self, see: See, *heads: Offsets, exact: bool = True, **facts: Any) -> None:
        self.see, self.own = see, Sight(heads, exact)
        vars(self).update(facts)
        self.heads = len(heads)

    def sight(self, segment: int | None = None) -> Sight:
        return self.own

    def predicate(self, seq: Seq) -> Any:
        return lambda b, h, q, k: self.see(seq, b, h, q, k)


class FewBlocks(Own):
    def blocks(self, seq: Seq, size: int) -> Tensor:
        count = -(-seq.ids.shape[1] // size)
        return torch.eye(count, dtype=torch.bool)[None]


def within(far: int) -> See:
    return lambda seq, b, h, q, k: (k - q).abs() <= far


def own_block(seq: Seq, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
    return q // 6 == k // 6


def by_head(seq: Seq, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
    return (k - q).abs() <= 5 + h


def by_segment(seq: Seq, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
    segment = seq.tracks["segment"]
    return (k == q) | ((segment[b, q] == 1) & (segment[b, k] == 1))


def by_mark(seq: Seq, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
    return within(5)(seq, b, h, q, k) | seq.tracks["mark"][b, k].bool()


SEGMENT = {"needs": frozenset({"tracks.segment"}), "static": False}
MARK = {"needs": frozenset({"tracks.mark"}), "static": False}
RIGHT = [
    Own(within(5), NEAR),
    Own(within(5), EVERY, exact=False),
    Own(own_block, NEAR, exact=False),
    Own(by_head, NEAR, Offsets.between(-6, 6)),
    Own(by_segment, EVERY, exact=False, **SEGMENT),
    Own(by_mark, EVERY, exact=False, **MARK),
    Not(Own(own_block, NEAR, exact=False)),
    Causal() & Own(within(5), NEAR),
]
FIX = r"fix: .*return Sight\(\(Offsets.between\({}, {}\),\), exact=False\)"
WRONG = [
    (Own(within(6), NEAR), r"Own: query 0 sees key 6, at the offset 6 that sight excludes"),
    (Own(within(6), NEAR), FIX.format(-6, 6)),
    (Own(within(90), Offsets.between(-70, 90)), "query 71 sees key 0, at the offset -71"),
    (Own(by_head, NEAR, NEAR), "query 0 sees key 6, at the offset 6"),
    (Own(own_block, NEAR), "query 1 does not see key 6, .*which is exact"),
    (Own(own_block, NEAR), r"state exact=False in Sight \(docs/extend/pattern.md\)"),
    (Own(by_segment, NEAR, exact=False, **SEGMENT), "that sight excludes"),
    (Own(by_mark, NEAR, exact=False, **MARK), "that sight excludes"),
    (Causal() & Own(within(6), NEAR), "Own: query 0 sees key 6"),
    (Causal() | Not(Own(within(6), NEAR)), "Own: query 0 sees key 6"),
    (FewBlocks(within(5), NEAR), "query 11 sees key 16, at the offset 5 that blocks excludes"),
]


@pytest.mark.parametrize("pattern", RIGHT)
def test_what_is_stated_rightly_passes(pattern: Pattern) -> None:
    check_sight(pattern)


@pytest.mark.parametrize(("pattern", "message"), WRONG)
def test_the_first_pair_that_is_stated_wrongly_is_named(pattern: Pattern, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check_sight(pattern)


@pytest.mark.parametrize(
    "name", ["diet", "dilated", "linked", "longformer", "prefix", "tree", "unilm"]
)
def test_patterns_of_plmctl_state_what_they_see(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plmctl.attention.patterns.stated._is_foreign", lambda part: True)
    words = [f"pattern={name}", "data.path=x"]
    check_sight(build(compose("pretrain", "roberta", words).pattern, path="pattern"))


def test_an_inexact_sight_is_no_band() -> None:
    """A kernel for bands computes from an exact `sight` alone."""
    assert Band.of(Own(within(5), NEAR)) is not None
    for pattern in (Own(own_block, NEAR, exact=False), OwnBlock(stride=6)):
        assert Band.of(pattern) is None


@pytest.mark.parametrize("recipe", ["roberta", "xlnet"])
def test_a_model_refuses_a_pattern_that_is_stated_wrongly(recipe: str) -> None:
    words = ["size=tiny", "size.num_layers=1", "data.path=x"]
    model = build_model(compose("pretrain", recipe, words), vocab_size=TINY.size, vocab=TINY)
    model.backbone.set_pattern(Own(within(5), NEAR))
    with pytest.raises(UsageError, match="Own: query 0 sees key 6"):
        model.backbone.set_pattern(Own(within(6), NEAR))
