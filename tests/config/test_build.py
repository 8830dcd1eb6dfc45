"""`build` and `check`: what may be named, what is filled in, which errors come out, with config
paths.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import pytest

from plmctl.config.build import build, check, entry, fit
from plmctl.core.errors import ConfigError, ConfigErrors, find_alike

PLUGIN = "probe_parts"
SOURCE = """
from __future__ import annotations
from typing import TYPE_CHECKING, Literal
import numpy as np
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
if TYPE_CHECKING:
    from nowhere import Unknown

@part_of("norm")
class Norm:
    def __init__(self, *, width: int, eps: float = 1e-5) -> None:
        self.width, self.eps = width, eps

@part_of("cells")
class Cell:
    def __init__(
        self,
        *,
        norm: Norm,
        rate: float,
        kind: Literal["a", "b"] = "a",
        other: Unknown | None = None,
    ) -> None:
        if not 0 < rate < 1:
            raise ConfigError("cell.rate", rate, "0 < rate < 1")
        self.norm, self.rate, self.kind = norm, rate, kind

    @classmethod
    def small(cls, *, width: int) -> Cell:
        return cls(norm=Norm(width=width), rate=0.5)

@part_of("model")
class Stack:
    def __init__(
        self, *, cells: dict[str, Cell], layers: list[int], make: Cell | None = None, depth: int = 1
    ) -> None:
        self.cells, self.layers, self.make, self.depth = cells, layers, make, depth

alias = Cell

class Undeclared(Cell): ...

@part_of("cells")
class _Hidden(Cell): ...
"""


@pytest.fixture(autouse=True)
def parts() -> Any:
    module = types.ModuleType(PLUGIN)
    sys.modules[PLUGIN] = module
    exec(compile(SOURCE, PLUGIN, "exec"), module.__dict__)
    yield module
    del sys.modules[PLUGIN]


def cell(**numbers: Any) -> dict[str, Any]:
    return {
        "_target_": f"{PLUGIN}.Cell",
        "norm": {"_target_": f"{PLUGIN}.Norm"},
        "rate": 0.1,
    } | numbers


def stack(**numbers: Any) -> dict[str, Any]:
    return {"_target_": f"{PLUGIN}.Stack", "cells": {"a": cell()}, "layers": [1, 2]} | numbers


def problems(node: Any, given: Any = ("width",), path: str = "model") -> list[str]:
    return [str(error) for error in check(node, given, [PLUGIN], path=path)]


def test_given_is_filled_at_every_depth_and_yaml_wins() -> None:
    made = build(
        stack(cells={"a": cell(), "b": cell(norm={"_target_": f"{PLUGIN}.Norm", "width": 3})}),
        {"width": 8},
        [PLUGIN],
        path="model",
    )
    assert (made.cells["a"].norm.width, made.cells["b"].norm.width) == (8, 3)


def test_partial_is_a_factory_that_may_lack_arguments() -> None:
    made = build(
        stack(make={"_target_": f"{PLUGIN}.Cell", "_partial_": True, "rate": 0.2}),
        {"width": 8},
        [PLUGIN],
        path="model",
    )
    assert isinstance(made.make, functools.partial)
    assert made.make.keywords == {"rate": 0.2}


def test_a_list_of_parts() -> None:
    node = {"parts": [{"_target_": f"{PLUGIN}.Norm", "width": 4}]}
    assert build(node, {}, [PLUGIN], path="norm")["parts"][0].width == 4


def test_whole_floats_become_ints() -> None:
    made = build(stack(depth=1e4), {"width": 8}, [PLUGIN], path="model")
    assert made.depth == 10_000
    assert type(made.depth) is int


@pytest.mark.parametrize(
    "target",
    [
        "os.system",
        "torch.hub.load",
        "subprocess.Popen",
        "plmctl.core.batch.np.load",
        "plmctl.core.errors.difflib.get_close_matches",
        f"{PLUGIN}.np.load",
        f"{PLUGIN}.alias",
        f"{PLUGIN}.TYPE_CHECKING",
        PLUGIN,
        "plmctl.cli.app.main",
        "plmctl.runs.pretraining.pretrain",
        "plmctl.noise.base.np",
        "builtins.eval",
        "",
        3,
        None,
        "plmctl",
        "plmctl.noise",
        "..",
        "probe_parts_else.Cell",
        f"{PLUGIN}.Cell.small",
        f"{PLUGIN}.Undeclared",
        f"{PLUGIN}._Hidden",
    ],
)
def test_only_what_declares_itself_a_part_may_be_named(target: Any) -> None:
    (error,) = check({"_target_": target}, None, [PLUGIN], path="model.stack.cells")
    assert isinstance(error, ConfigError)
    assert error.path == "model.stack.cells._target_"
    with pytest.raises(ConfigError):
        build({"_target_": target}, {}, [PLUGIN], path="cells")


def test_a_part_stands_in_its_own_slot_alone() -> None:
    """In the slot of the config path, and inside of a part in that of the parameter, whose type
    it has as well.
    """
    (said,) = problems(cell(norm=cell()), path="cells")
    assert said.startswith(
        "cells.norm._target_='probe_parts.Cell': must be a part of the slot 'norm'"
    )
    (said,) = problems(cell(), path="optim")
    assert said.startswith(
        "optim._target_='probe_parts.Cell': must be a part of the slot 'optim', and this one is of"
        " 'cells'"
    )
    (said,) = problems({"one": cell()}, path="noise")
    assert "noise.one._target_" in said
    node = {"_target_": "plmctl.models.two_way.TwoWay", "initializer": None}
    node["forward"] = {"_target_": "plmctl.models.bilm.BiLM"}
    found = "\n".join(problems(node, given=None))
    assert (
        "model.forward._target_='plmctl.models.bilm.BiLM': must be a part of the type Encoder"
        in found
    )


def test_a_refused_package_is_not_even_imported() -> None:
    sys.modules.pop("antigravity", None)
    check({"_target_": "antigravity.fly"}, None, [PLUGIN], path="model")
    assert "antigravity" not in sys.modules


def test_a_plugin_counts_only_when_named() -> None:
    (error,) = check({"_target_": f"{PLUGIN}.Norm", "width": 1}, None, [], path="norm")
    assert "--plugin" in str(error)


def test_all_errors_come_together_with_paths_and_nearest_names() -> None:
    node = stack(cells={"a": cell(rat=1, rate="abc", kind="c", norm=3)}, layers=[1, "x"], depth=1.5)
    found = problems(node)
    text = "\n".join(found)
    assert len(found) == 6
    assert (
        "model.cells.a.rat=1: Cell has no 'rat' (did you mean 'rate'?); it takes norm, rate, kind,"
        " other" in text
    )
    assert "model.cells.a.rate='abc': must be a number" in text
    assert "model.cells.a.kind='c': must be one of a, b" in text
    assert "model.cells.a.norm=3: must be a part (Norm)" in text
    assert "model.layers=[1, 'x']: must be a whole number" in text
    assert "model.depth=1.5: must be a whole number" in text
    with pytest.raises(ConfigErrors, match="6 problems"):
        build(node, {"width": 1}, [PLUGIN], path="model")


def test_missing_arguments_are_named_only_where_nothing_fills_them() -> None:
    node = {"_target_": f"{PLUGIN}.Norm"}
    assert "fix: norm.width=..." in problems(node, given=(), path="norm")[0]
    assert problems(node, given=("width",), path="norm") == []
    assert problems(node, given=None, path="norm") == []
    assert (
        "must be given" in problems({"_target_": f"{PLUGIN}.Norm", "width": "???"}, path="norm")[0]
    )


def test_an_error_of_a_part_gets_the_path_of_the_config() -> None:
    with pytest.raises(ConfigErrors) as caught:
        build(
            stack(cells={"a": cell(rate=1.5), "b": cell(rate=0)}),
            {"width": 8},
            [PLUGIN],
            path="model",
        )
    assert [error.path for error in caught.value.errors] == [
        "model.cells.a.rate",
        "model.cells.b.rate",
    ]  # type: ignore[attr-defined]


def test_an_unknown_name_in_a_module_is_answered_with_the_nearest() -> None:
    assert "did you mean 'Cell'?" in problems({"_target_": f"{PLUGIN}.Cel"}, path="cells")[0]


@pytest.mark.parametrize(
    ("value", "annotation", "wanted"),
    [
        (1e4, int, 10_000),
        (3, float, 3.0),
        (3, str, "3"),
        (True, bool, True),
        (None, int | None, None),
        ("auto", Literal["auto", True], "auto"),
        (True, Literal["auto", True, False], True),
        (1e3, int | float, 1000.0),
        (1e3, int | str, 1000),
        (-1, int | Literal["all"], -1),
        ([1.0], list[int], [1]),
        ({"a": 1}, dict[str, float], {"a": 1.0}),
        ("x", Path, Path("x")),
        ([1, 2], Sequence[float], [1.0, 2.0]),
        ({"a": 1}, Mapping[str, Any], {"a": 1}),
        ("anything", Any, "anything"),
        ("x", object, "x"),
        ([0.9, 0.99], tuple[float, float], [0.9, 0.99]),
    ],
)
def test_fit_takes(value: Any, annotation: Any, wanted: Any) -> None:
    assert fit(value, annotation) == wanted
    assert type(fit(value, annotation)) is type(wanted)


@pytest.mark.parametrize(
    ("value", "annotation"),
    [
        ("abc", float),
        (float("nan"), float),
        (float("nan"), float | None),
        (float("nan"), int),
        (True, int),
        (1, bool),
        (1.5, int),
        (None, int),
        ("bf17", Literal["bf16", "fp16"]),
        ("a,b", list[str]),
        ("x", int | None),
        (1, Literal[True, False]),
        (["a"], dict[str, int]),
        (True, float),
        (False, str),
    ],
)
def test_fit_refuses(value: Any, annotation: Any) -> None:
    with pytest.raises(ValueError, match="must be"):
        fit(value, annotation)


def test_an_objective_entry_gives_its_weight_and_source_to_the_mix() -> None:
    assert entry({"_target_": "x", "weight": 2, "on": "text"}) == ({"_target_": "x"}, 2.0, "text")
    assert entry({"_target_": "x"}) == ({"_target_": "x"}, 1.0, None)
    with pytest.raises(ConfigErrors):
        entry({"_target_": "x", "weight": "abc", "on": 3})


def test_a_name_is_found_by_its_beginning() -> None:
    names = ["mrpc", "drcd", "cmrc2018_trial", "cmrc2018"]
    assert find_alike("cmrc", names, most=2) == ["cmrc2018", "cmrc2018_trial"]
    assert find_alike("mrcp", names) == ["mrpc"]
    assert find_alike("cm", names) == []


def test_the_nearest_value_is_named_beside_null() -> None:
    words = r"^must be one of jieba or null \(did you mean 'jieba'\?\)$"
    with pytest.raises(ValueError, match=words):
        fit("jeiba", Literal["jieba"] | None)
