"""`plmctl.load`: a trained model from any folder, or several tasks of one base model."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from plmctl.api.model import TrainedModel
from plmctl.api.settings import Settings, check_path, to_words
from plmctl.artifacts.deployed import load_to_answer
from plmctl.config.plugins import Unconfirmed
from plmctl.config.spec import Provenance
from plmctl.core.errors import ConfigError, UsageError
from plmctl.core.values import fit
from plmctl.runs.deciding import advise, decide
from plmctl.training.device.precision import choose
from plmctl.training.processes.world import device_of
from plmctl.use.items import PLACE
from plmctl.use.runtimes import open_runtime
from plmctl.use.shared_base import SharedBase
from plmctl.use.shared_base import load_adapters as open_adapters

Device = Literal["auto", "cpu", "cuda"]
Numbers = Literal["auto", "fp32", "bf16", "fp16"]


def load(
    path: str | os.PathLike[str],
    *,
    plugins: Sequence[str] = (),
    device: Device = "cpu",
    precision: Numbers = "fp32",
    runtime: str | None = None,
    runtime_options: Settings | None = None,
) -> TrainedModel:
    """The model of a run (its best checkpoint, else the newest), a checkpoint, or a Hugging Face
    folder: `.model` (in eval mode), `.tokenizer`, `.vocab` and `.config`, and methods that use it.

    Args:
        path: the folder.
        plugins: the packages outside plmctl that it may be made of; one that is not named here is
            not imported.
        device: "auto" is a GPU where there is one.
        precision: The numbers to compute with; "auto": as training chooses.
        runtime: The library that computes answers and vectors: "torch", "onnx", "openvino", "auto";
            or that writes texts: "ctranslate2". None: PyTorch, or that of an exported folder.
        runtime_options: Settings of the runtime: {"int8": True}.
    """
    check_path("path", path)
    _check("device", device, Device)
    _check("precision", precision, Numbers)
    chosen = choose(precision, device_of(device, "device"))
    try:
        loaded, _ = load_to_answer(os.fspath(path), device, precision, plugins)
        found = loaded.runtime
        if runtime is not None:
            node = _compose_runtime(runtime, runtime_options or {}, tuple(plugins))
            found = open_runtime(node, chosen, plugins, loaded)
    except Unconfirmed as error:
        raise error.for_python() from None
    model = loaded.model if loaded.runtime else loaded.model.to(chosen.device)
    return TrainedModel(model, loaded.source, chosen, runtime=found)


def _compose_runtime(name: str, options: Settings, plugins: tuple[str, ...]) -> Any:
    """The settings of a runtime, as `plmctl predict` composes them."""
    settings = {f"runtime.{option}": value for option, value in options.items()}
    words = to_words({"checkpoint": PLACE, "input": PLACE, "runtime": name, **settings})
    given = Provenance("predict", overrides=words, plugins=plugins)
    with advise(given):
        spec: Any = decide(given)
    return spec.runtime


def load_adapters(
    paths: Mapping[str, str | os.PathLike[str]],
    *,
    plugins: Sequence[str] = (),
    device: Device = "cpu",
) -> SharedBase:
    """The one base model of several runs with `peft=`, loaded once, with everything that each run
    has learned. `.predict(lines, tasks)` answers rows of all tasks together.

    `paths`: {a name of the task: its run or checkpoint}; `plugins` and `device` as of `load`.
    """
    _check("device", device, Device)
    if not isinstance(paths, Mapping):
        fix = '{"sst2": "runs/sst2", "rte": "runs/rte"}'
        raise UsageError(f"paths are a dict of names and runs, not {paths!r}\n  fix: {fix}")
    for name, path in paths.items():
        check_path(f"paths[{name!r}]", path)
    try:
        return open_adapters(paths, plugins=plugins, device=device_of(device, "device"))
    except Unconfirmed as error:
        raise error.for_python() from None


def _check(name: str, value: object, kind: Any) -> None:
    try:
        fit(value, kind)
    except ValueError as error:
        raise ConfigError(name, value, str(error)) from None
