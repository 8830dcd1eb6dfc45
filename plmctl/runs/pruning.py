"""The prunings of a training (`pruning=`), and whether a model can have them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from plmctl.artifacts.loading import open_source
from plmctl.config.build import build
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
    _check(spec, objective)

    def open_weights(run: str) -> Mapping[str, Tensor]:
        return open_source(Path(run).expanduser(), plugins=spec.plugins).tensors

    given = {"open_weights": open_weights}
    parts: dict[str, Pruning] = {
        name: build(node, given, spec.plugins, path=f"pruning.{name}")
        for name, node in nodes.items()
    }
    begun = Beginning(model, objective, frozenset(), spec.seed, resumed, lambda: iter(()))
    for _ in begin_parts("pruning", parts, nodes, begun):
        pass
    return Stabilised(objective=objective, parts=parts)


def _check(spec: Any, objective: Objective) -> None:
    """ConfigError for settings that undo a pruning."""
    if spec.get("peft"):
        allowed = "[]: peft saves what it adds, and no pruned weights"
        raise ConfigError("pruning", list(spec.pruning), allowed, fix="peft=[]")
    parts = objective.each() if isinstance(objective, Stabilised) else ()
    if any(part.averages for part in parts):
        allowed = "[] with averages of the weights, which are not 0 where the last ones are"
        raise ConfigError("pruning", list(spec.pruning), allowed, fix="stabiliser=[]")
