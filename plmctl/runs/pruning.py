"""The prunings of a training (`pruning=`), and whether a model can have them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from plmctl.artifacts.loading import open_source
from plmctl.artifacts.narrowing import Axes, find_axes
from plmctl.config.build import build
from plmctl.config.model_settings import model_settings
from plmctl.config.spec import thaw
from plmctl.core.errors import ConfigError
from plmctl.models.base import Model
from plmctl.objectives.base import Objective
from plmctl.runs.stabilising import begin_parts
from plmctl.training.pruning.base import Pruning
from plmctl.training.stabilisers.base import Beginning, Stabilised


def prune(spec: Any, model: Model, objective: Objective, *, resumed: bool) -> Objective:
    """`objective` with the prunings that the spec names; itself without any.

    Args:
        resumed: weights and buffers are loaded later.

    Raises:
        ConfigError: The model has nothing to prune, or another setting does not fit.
    """
    nodes: Mapping[str, Any] = thaw(spec.get("pruning")) or {}
    if not nodes:
        return objective
    _check(spec)

    def open_weights(run: str) -> Mapping[str, Tensor]:
        return open_source(Path(run).expanduser(), plugins=spec.plugins).tensors

    def find_stream_axes() -> Axes:
        return find_axes(model_settings(spec), plugins=spec.plugins)

    given = {"open_weights": open_weights, "find_axes": find_stream_axes}
    parts: dict[str, Pruning] = {
        name: build(node, given, spec.plugins, path=f"pruning.{name}")
        for name, node in nodes.items()
    }
    begun = Beginning(model, objective, frozenset(), spec.seed, resumed, lambda: iter(()))
    for _ in begin_parts("pruning", parts, nodes, begun):
        pass
    _check_exchange(objective, parts)
    _check_fixed(objective, parts)
    _check_compiled(spec, parts)
    return Stabilised(objective=objective, parts=parts)


def _check(spec: Any) -> None:
    """ConfigError for settings that undo a pruning."""
    if spec.get("peft"):
        allowed = "[]: peft saves what it adds, and no pruned weights"
        raise ConfigError("pruning", list(spec.pruning), allowed, fix="peft=[]")


def _check_exchange(objective: Objective, parts: Mapping[str, Pruning]) -> None:
    """ConfigError for a stabiliser whose weights of evaluation would not be pruned."""
    stabilisers = objective.parts.items() if isinstance(objective, Stabilised) else ()
    averaging = {name: part for name, part in stabilisers if part.averages}
    drawn = [name for name, part in parts.items() if part.averages]
    for name, part in averaging.items():
        if drawn or not part.keeps_zeros:
            allowed = f"[] with {name}: it evaluates weights that are not 0 where these are"
            raise ConfigError("pruning", drawn or list(parts), allowed, fix="stabiliser=[]")


def _check_fixed(objective: Objective, parts: Mapping[str, Pruning]) -> None:
    """ConfigError for a stabiliser that fixes weights which a pruning changes later."""
    stabilisers: Any = objective.parts if isinstance(objective, Stabilised) else {}
    fixed = {name: part.fixed_at for name, part in stabilisers.items()}
    for name, at in ((name, at) for name, at in fixed.items() if at is not None):
        for own, part in parts.items():
            if part.averages:
                allowed = f"[] with {name}: its gates multiply the weights that {name} has fixed"
                raise ConfigError("pruning", own, allowed, fix="pruning=[magnitude]")
            if part.end_at > at:
                path, allowed = f"pruning.{own}.end_at", f"at most {at:g}, where {name} begins"
                fix = f"pruning.{own}.begin_at=0 {path}={at:g}"
                raise ConfigError(path, part.end_at, allowed, fix=fix)


def _check_compiled(spec: Any, parts: Mapping[str, Pruning]) -> None:
    """ConfigError for a compiled model where a pruning measures inside of it."""
    measures = next((name for name, part in parts.items() if part.rewrites), "")
    if measures and spec.train.compile is True:
        allowed = f"false: {measures} measures what the parts of a model read"
        raise ConfigError("train.compile", True, allowed, fix="train.compile=false")
