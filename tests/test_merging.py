"""Settings merged on plain values are those that OmegaConf and Hydra make."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from plmctl.run.composer import set_values, to_plain
from plmctl.run.merging import UnusualMerge, assign, embed, merge

NAMES = ("a", "b", "c")
VALUES = (None, True, 3, 0.5, "text", "???", "${a}", [1, 2], [], {})


def draw(draws: random.Random, depth: int = 3) -> dict[str, Any]:
    """Nested settings of few names, so that they meet."""
    return {
        name: draw(draws, depth - 1) if depth and draws.random() < 0.5 else draws.choice(VALUES)
        for name in draws.sample(NAMES, draws.randint(1, 3))
    }


def test_it_is_the_merge_of_omegaconf() -> None:
    draws, same, unusual = random.Random(0), 0, 0
    for _ in range(400):
        below, above = draw(draws), draw(draws)
        made = OmegaConf.to_container(OmegaConf.create(below))
        assert isinstance(made, dict)
        try:
            merge(made, above)
        except UnusualMerge:
            unusual += 1
            continue
        expected = OmegaConf.to_container(
            OmegaConf.merge(OmegaConf.create(below), OmegaConf.create(above))
        )
        assert made == expected
        assert list(made) == list(expected)
        same += 1
    assert same > 200
    assert unusual > 20  # so that they are met


def test_what_is_assigned_is_what_an_update_makes() -> None:
    draws, done = random.Random(1), 0
    for _ in range(600):
        tree = draw(draws)
        config = OmegaConf.create(tree)
        OmegaConf.set_struct(config, True)
        key, value = ".".join(draws.choices(NAMES, k=draws.randint(1, 3))), draws.choice(VALUES)
        before = to_plain(config)
        if assign(before, key, value):
            OmegaConf.update(config, key, value, merge=True)
            done += 1
        assert before == to_plain(config)
    assert done > 40


def test_what_takes_more_is_left_to_omegaconf() -> None:
    for key, value in (("b", 1), ("a.b", 1), ("a", {"x": 1}), ("a", "${c}"), ("l.0", 1)):
        tree: dict[str, Any] = {"a": 1, "c": 2, "l": [1]}
        assert not assign(tree, key, value)
        assert tree == {"a": 1, "c": 2, "l": [1]}
    with pytest.raises(UnusualMerge):
        merge({"eval": "${noise}", "noise": {}}, {"eval": {"rate": 1}})
    with pytest.raises(UnusualMerge):
        embed("a[0]", {})


def test_nothing_is_shared_with_what_was_read() -> None:
    read = {"a": {"b": [1, {"c": 2}]}}
    made: dict[str, Any] = {}
    merge(made, embed("x.y", read))
    made["x"]["y"]["a"]["b"][1]["c"] = 3
    assert read == {"a": {"b": [1, {"c": 2}]}}


@pytest.mark.parametrize(
    "word", ["noise.x=5", "a.b.c=2", "+new={x:1}", "~lr", "names=[]", "a={d:1}"]
)
def test_values_are_set_as_one_by_one(word: str) -> None:
    """With what is assigned before and behind it."""
    tree = {"lr": 1, "a": {"b": {"c": 1}, "d": 2}, "noise": {"x": 1}, "names": [1, 2]}
    config = OmegaConf.create(tree)
    words = ["a.d=7", word, "a.b.c=null"]
    OmegaConf.set_struct(config, True)
    for parsed in OverridesParser.create().parse_overrides(words):
        ConfigLoaderImpl._apply_overrides_to_config([parsed], config)
    made, bad = set_values(to_plain(OmegaConf.create(tree)), words)
    assert made == to_plain(config)
    assert not bad
