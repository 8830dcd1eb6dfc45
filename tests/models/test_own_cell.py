"""A cell of a user's own, named on the command line: what is built, and what is refused."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from plmctl.artifacts.assemble import build_model
from plmctl.config.compose import compose
from plmctl.core.errors import ConfigError, UsageError
from plmctl.models.base import Model
from plmctl.runs.contract.stand_in import TINY

PLUGIN = "plmctl_scale"
SOURCE = """
from torch import nn
from plmctl.core.parts import part_of
from plmctl.nn.cells.base import Cell

@part_of("cells")
class Scale(Cell):
    computes, ahead = "mixing", True

    def __init__(self, *, width: int, bias: bool) -> None:
        super().__init__()
        self.map = nn.Linear(width, width, bias=bias)

    def forward(self, streams, env):
        return self.map(streams["text"])
"""
WORDS = [
    "size=tiny",
    "data.path=x",
    "model.stack.layout=zf*2",
    f"+model.stack.cells.z._target_={PLUGIN}.Scale",
    "+model.stack.cells.z.bias=false",
]


@pytest.fixture(autouse=True)
def _plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / f"{PLUGIN}.py").write_text(SOURCE, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop(PLUGIN, None)


def built(*words: str, recipe: str = "bert") -> Model:
    spec = compose("pretrain", recipe, [*WORDS, *words], plugins=[PLUGIN])
    return build_model(spec, vocab_size=TINY.size, vocab=TINY, seed=0, plugins=[PLUGIN])


@pytest.mark.parametrize("partial", [[], ["+model.stack.cells.z._partial_=true"]])
def test_each_layer_has_a_cell_of_its_own(partial: list[str]) -> None:
    weights = built(*partial).state_dict()
    maps = [weights[name] for name in weights if name.endswith("map.weight")]
    assert len(maps) == 2
    assert not maps[0].equal(maps[1])
    assert not [name for name in weights if name.endswith("map.bias")]


def test_a_setting_of_the_cell_is_checked_before_it_is_built() -> None:
    with pytest.raises(ConfigError, match=r"cells\.z\.rate=1: Scale has no 'rate'"):
        built("+model.stack.cells.z.rate=1")


def test_causal_is_offered_to_cells_that_have_it() -> None:
    with pytest.raises(ConfigError, match="Causal allows less") as error:
        built(recipe="gpt")
    assert error.value.fix == "pattern=full, or no 'z' in the layout"


def test_without_a_plus_the_message_says_it() -> None:
    with pytest.raises(
        UsageError,
        match=r"a \+ before it adds one[^\n]*\n  fix: '\+model\.stack\.cells\.z=\{_target_:a\.B\}'",
    ):
        compose("pretrain", "bert", ["data.path=x", "model.stack.cells.z={_target_:a.B}"])
