"""The runtime that settings name: the library which computes the answers of a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from plmctl.artifacts.loading import Loaded
from plmctl.config.build import build
from plmctl.config.recipes import conf_dir
from plmctl.core.errors import ConfigError
from plmctl.generation.prompts import PromptReader
from plmctl.generation.writer import writer_of
from plmctl.runtime.base import Runtime
from plmctl.runtime.eager import EagerRuntime
from plmctl.training.device.precision import Precision


def open_runtime(
    node: Any, precision: Precision, plugins: Sequence[str], loaded: Loaded | None = None
) -> Runtime:
    """The runtime that the settings name, or that of an exported folder; ConfigError where it
    cannot compute like this.
    """
    stored = loaded.runtime if loaded else None
    if stored is not None and node is not None:
        folder = loaded.source.folder if loaded else ""
        allowed = f"null: {stored.describe()} computes the file of {folder}"
        raise ConfigError("runtime", _name(node), allowed, fix="leave runtime out")
    runtime = stored or _build(node, plugins)
    if not runtime.on_gpu and precision.device.type != "cpu":
        raise ConfigError("device", "cuda", "cpu: this runtime computes there", fix="device=cpu")
    if not runtime.on_gpu and precision.name != "fp32":
        allowed = "fp32: other numbers are of runtime=torch"
        raise ConfigError("precision", precision.name, allowed, fix="precision=fp32")
    return runtime


def let_write(reader: PromptReader, runtime: Runtime) -> PromptReader:
    """A reader of prompts whose texts this runtime writes; UsageError where it writes none."""
    if writer_of(reader.model) is not None:  # the library of an exported folder
        return reader
    return replace(reader, model=runtime.let_write(reader.model))


def refuse_runtime(node: Any, plugins: Sequence[str], why: str) -> None:
    """ConfigError for another runtime than PyTorch."""
    if not _build(node, plugins).on_gpu:
        raise ConfigError("runtime", _name(node), f"torch: {why}", fix="runtime=torch")


def _name(node: Any) -> str:
    """The name of the YAML of a runtime, as a user types it."""
    files = sorted((conf_dir() / "runtime").glob("*.yaml"))
    target = str(node["_target_"])
    named = (file.stem for file in files if f"_target_: {target}" in file.read_text("utf-8"))
    return next(named, target)


def _build(node: Any, plugins: Sequence[str]) -> Runtime:
    """The runtime that the settings name; without one, PyTorch."""
    return EagerRuntime() if node is None else build(node, {}, plugins, path="runtime")
