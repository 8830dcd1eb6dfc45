"""What a config may name: nothing of the package but what declares itself a part, and each in
its own slot alone.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import plmctl
from plmctl.config.build import build, check, parameters, slot_at
from plmctl.config.recipes import conf_dir, recipes_dir
from plmctl.core import parts
from plmctl.core.errors import ConfigError
from plmctl.core.locate import locate


def modules() -> Iterator[str]:
    yield from (
        found.name
        for found in pkgutil.walk_packages(plmctl.__path__, "plmctl.")
        if "__main__" not in found.name
    )


def callables() -> Iterator[tuple[str, Any]]:
    """(name, callable) for every name in every module, and for every method of its classes."""
    for module in modules():
        for name, value in vars(importlib.import_module(module)).items():
            if callable(value):
                yield f"{module}.{name}", value
            if inspect.isclass(value) and value.__module__ == module:
                yield from (
                    (f"{module}.{name}.{inner}", method)
                    for inner, method in vars(value).items()
                    if callable(method)
                )


def nodes(content: Any) -> Iterator[str]:
    """Every `_target_` in a YAML file."""
    if isinstance(content, dict):
        yield from [content["_target_"]] if "_target_" in content else []
        content = list(content.values())
    for child in content if isinstance(content, list) else []:
        yield from nodes(child)


def keys(content: Any) -> Iterator[str]:
    """Every key of a YAML file under which parts stand."""
    for key, child in content.items() if isinstance(content, dict) else ():
        inner = child.values() if isinstance(child, dict) else ()
        if any(isinstance(node, dict) and "_target_" in node for node in (child, *inner)):
            yield key
        yield from keys(child)


def test_no_callable_of_the_package_is_accepted_unless_it_declares_itself_at_its_own_name() -> None:
    seen = refused = 0
    for name, value in callables():
        seen += 1
        own = f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', '')}" == name
        if own and parts.declared(value) and not value.__name__.startswith("_"):
            assert locate(name) is value
            continue
        refused += 1
        with pytest.raises(ValueError):
            locate(name)
    assert seen > 5000
    assert 100 < seen - refused < 600  # parts are few


def test_parts_declare_slots_that_exist() -> None:
    """A slot is a key of a config: a folder of conf/, a key that a YAML file fills with a part, or
    a parameter of another part.
    """
    made = {value for _, value in callables() if parts.declared(value)}
    taken = {
        parts.slot_of(name, parameter.annotation)
        for part in made
        for name, parameter in parameters(part).items()
    }
    files = [file for folder in (conf_dir(), recipes_dir()) for file in folder.rglob("*.yaml")]
    filled = {key for file in files for key in keys(yaml.safe_load(file.read_text("utf-8")))}
    folders = {folder.name for folder in conf_dir().iterdir()}
    slots = {str(parts.declared(part)) for part in made}
    assert {parts.KEYS.get(slot, slot) for slot in slots} <= taken | filled | folders


def test_every_part_of_every_file_is_one() -> None:
    files = [file for folder in (conf_dir(), recipes_dir()) for file in folder.rglob("*.yaml")]
    named = {
        target
        for file in files
        for target in nodes(yaml.safe_load(file.read_text(encoding="utf-8")))
    }
    assert len(named) > 120
    assert all(parts.declared(locate(target)) for target in named)


@pytest.mark.parametrize(
    "target",
    [
        "plmctl.training.processes.launch.launch",
        "plmctl.training.rundir.undo_create",
        "plmctl.training.rundir.create",
        "plmctl.training.checkpoint.Checkpoints._remove",
        "plmctl.training.log.cut_back",
        "plmctl.text.inputs.needed",
        "plmctl.text.train.Unigram.train",
        "plmctl.noise.base.Chain",
        "plmctl.__main__.main",
    ],
)
@pytest.mark.parametrize("path", ["pattern", "noise.extra", "model", "heads.mlm", "task.reader"])
def test_what_ran_code_is_refused_in_every_slot(target: str, path: str, tmp_path: Path) -> None:
    kept = tmp_path / "checkpoints"
    kept.mkdir()
    node = {
        "_target_": target,
        "folder": str(tmp_path),
        "made": [],
        "module": "timeit",
        "argv": [],
        "processes": 1,
    }
    with pytest.raises(ConfigError, match="_target_"):
        build(node, {}, path=path)
    assert kept.is_dir()


def test_it_is_refused_before_anything_beside_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    from plmctl.attention.patterns.base import Full
    from plmctl.attention.patterns.by_segment import BySegment

    made: list[object] = []
    monkeypatch.setattr(Full, "__init__", lambda self: made.append(self))
    good, bad = (
        {"_target_": "plmctl.attention.patterns.base.Full"},
        {"_target_": "plmctl.training.log.cut_back"},
    )
    with pytest.raises(ConfigError, match=r"pattern\.parts\.1\._target_"):
        build(
            {"_target_": f"{BySegment.__module__}.BySegment", "parts": [good, bad]},
            {},
            path="pattern",
        )
    assert made == []


def test_the_slot_of_a_config_path() -> None:
    assert [
        slot_at(path)
        for path in (
            "pattern",
            "noise.token_mask",
            "eval.noise.x",
            "data.sources.a.format",
            "noise",
        )
    ] == ["pattern", "noise", "noise", "format", "noise"]


def test_a_part_of_another_slot_is_refused() -> None:
    for path in ("noise.x", "heads.x", "optim", "model"):
        (error,) = check({"_target_": "plmctl.attention.patterns.base.Full"}, None, path=path)
        assert f"must be a part of the slot '{slot_at(path)}', and this one is of 'pattern'" in str(
            error
        )
