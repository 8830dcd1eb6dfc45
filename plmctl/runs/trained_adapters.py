"""Adapters of earlier runs, in a model that learns how to use them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from plmctl.artifacts.loading import Source, find, find_base_tensors, open_source
from plmctl.config.build import class_of, plain
from plmctl.config.schema import Finetune
from plmctl.core.errors import ConfigError
from plmctl.core.spelling import spell_setting
from plmctl.models.base import Model
from plmctl.nn.peft.bottleneck import Bottleneck
from plmctl.nn.peft.fusion import TrainedAdapters
from plmctl.training.checkpoint import load_tensors, read_base


def find_adapters(spec: Finetune, source: Source) -> Finetune:
    """The spec with the settings of the adapters that its methods take from runs.

    Args:
        source: The checkpoint, which these runs must have been trained beside.
    """
    changes = {}
    for name, node in (plain(spec.peft) or {}).items():
        if _takes_runs(node, spec.plugins):
            runs = list(node.get("runs") or ())
            adapters = [_describe(spec, name, run, source) for run in runs]
            _refuse_twice(f"peft.{name}.runs", runs)
            changes[f"peft.{name}.adapters"] = adapters
    return spec.replace(changes)


def take_adapters(spec: Finetune, model: Model) -> None:
    """Copy what those runs have learned into a model."""
    for node, method in zip((plain(spec.peft) or {}).values(), model.methods, strict=True):
        if isinstance(method, TrainedAdapters):
            for number, run in enumerate(node["runs"]):
                tensors = {
                    method.rename(name, number): tensor
                    for name, tensor in open_source(run, plugins=spec.plugins).tensors.items()
                    if f".{Bottleneck.mark}." in name
                }
                load_tensors(model, tensors)


def _refuse_twice(path: str, runs: Sequence[str]) -> None:
    """ConfigError for two runs that are one checkpoint."""
    folders: dict[Path, str] = {}
    for run in runs:
        if (first := folders.get(folder := find(run).resolve())) is not None:
            allowed = "another run" + ("" if first == run else f": it is the adapter of {first}")
            fix = spell_setting(path, list(folders.values()))
            raise ConfigError(path, run, f"{allowed}; an adapter is there once", fix=fix)
        folders[folder] = run


def _takes_runs(node: Mapping[str, Any], plugins: Any) -> bool:
    kind = class_of(node, plugins)
    return bool(getattr(kind, "takes_runs", False))


def _describe(spec: Finetune, name: str, run: str, source: Source) -> dict[str, Any]:
    """The node of the adapter of a run.

    Raises:
        ConfigError: The run has learned another kind of adapter, or on another model.
    """
    path, own = f"peft.{name}.runs", open_source(run, plugins=spec.plugins)
    methods = own.config.get("peft") or {}
    kinds = [class_of(node, spec.plugins) for node in methods.values()]
    if kinds != [Bottleneck]:
        has = f"peft=[{', '.join(methods)}]" if methods else "no method"
        raise ConfigError(path, run, f"a run with one adapter alone; this one has {has}")
    (node,) = methods.values()
    if node.get("norms"):
        allowed = "one that has not trained the norms, too, which the model has but once"
        raise ConfigError(path, run, allowed, fix="train it with peft.adapter.norms=false")
    base = read_base(own.folder)
    if base is None or find_base_tensors(base, source) is None:
        beside = "none" if base is None else base["path"]
        allowed = f"a run on checkpoint={spec.checkpoint}; this one is on {beside}"
        fix = f"{path}=[<a run with peft=[adapter] beside {spec.checkpoint}>]"
        fix = spell_setting("checkpoint", beside) if base and Path(beside).exists() else fix
        raise ConfigError(path, run, allowed, fix=fix)
    return dict(node)
