"""The task that settings of an evaluation are of where none is named: that of its checkpoint."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import Any

from plmctl.config.composer import HydraComposer
from plmctl.config.quoting import split_values, unquote
from plmctl.config.saved import CONFIG, read_saved
from plmctl.config.spec import Provenance
from plmctl.core.errors import PlmctlError


def add_task(given: Provenance, composer: HydraComposer) -> Provenance:
    """The command line of a use of a model with the task that its checkpoint was fine-tuned on. It
    is added where the line has settings of a task and names none. It stays as it is if that task is
    not known.
    """
    words = {
        key.lstrip("+~"): value for key, _, value in (w.partition("=") for w in given.overrides)
    }
    asks = any(key.startswith("task.") for key in words)
    if (
        given.verb not in ("eval", "attack", "predict", "label")
        or given.recipe
        or not asks
        or {"task", "by"} & {*words}
    ):
        return given
    name = _find_task(words.get("checkpoint", ""))
    if name not in composer.options("task"):
        return given
    return replace(given, overrides=(f"task={name}", *given.overrides))


def _find_task(checkpoint: str) -> str:
    """The name of the task of a run, a checkpoint or a linear model, the first of several; ""
    without a task.
    """
    # the name of one folder may have commas
    places = map(unquote, (checkpoint, *split_values(checkpoint.strip("[]"))))
    with contextlib.suppress(PlmctlError):
        configs = (_read_config(Path(place).expanduser()) for place in places if place)
        task = next(filter(None, configs), {}).get("task")
        return str(task.get("name", "")) if isinstance(task, dict) else ""
    return ""


def _read_config(place: Path) -> dict[str, Any]:
    """The config of a model's folder; {} for others."""
    from plmctl.tasks.linear_model import is_linear, load_linear  # torch, which help has no use for

    if (file := place / CONFIG).is_file():
        return read_saved(file)
    return load_linear(place)[1] if is_linear(place) else {}
