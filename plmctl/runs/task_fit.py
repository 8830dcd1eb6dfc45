"""The settings of a spec that a task decides: heads that write, lengths of rows, outputs
and names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plmctl.artifacts.assemble import settle_lengths
from plmctl.artifacts.loading import open_source
from plmctl.artifacts.places import Places
from plmctl.attention.patterns.base import And, Full
from plmctl.config.asked import is_asked
from plmctl.config.build import class_of, parameters_of
from plmctl.config.schema import Finetune
from plmctl.config.spec import thaw
from plmctl.core.errors import ConfigError
from plmctl.core.locate import parameters
from plmctl.core.parts import target_of
from plmctl.core.terminal import remark
from plmctl.heads.base import POOLER
from plmctl.tasks.task import Task

LANGUAGE_HEAD = {
    "_target_": "plmctl.heads.lm.LMHead",
    "tied": True,
    "transform": False,
    "bias": False,
}


def fit_language_heads(spec: Finetune, task: Task) -> Finetune:
    """The spec with the heads that the task looks up and its file does not make. These are heads
    that write: the checkpoint's own, else a tied one.
    """
    missing = sorted(task.facts.heads - set(spec.heads))
    trained: Mapping[str, Any] = {}
    if missing and spec.checkpoint and not spec.checkpoint_into:
        trained = open_source(spec.checkpoint, plugins=spec.plugins).config.get("heads") or {}
    new = {**LANGUAGE_HEAD, "about": task.requires.heads_about}
    return spec.replace({f"heads.{name}": trained.get(name) or new for name in missing})


def fit_lengths(spec: Finetune, task: Task) -> dict[str, int]:
    """{setting: the length that fits} where rows are longer than the positions that a checkpoint
    has learned, and the user wrote no length; ConfigError where one did.
    """
    if not spec.checkpoint:
        return {}
    places = Places.of(open_source(spec.checkpoint, plugins=spec.plugins).config)
    _, written = task.lengths.sides
    # one number for both is reported below
    if places.read != places.written and written > (places.written or written):
        allowed = f"at most {places.written}, the longest text that {spec.checkpoint} writes"
        error = ConfigError("task.max_target", written, allowed)
        return _choose_lengths(spec, error, {"task.max_target": places.written or 0})
    bound = places.read if written else places.both
    if bound is None or task.lengths.longest <= bound:
        return {}
    fits = {
        f"task.{name}": length
        for name, length in task.lengths.fit(bound).items()
        if length != getattr(task, name)
    }
    more = f"; with task.max_target a row has {task.lengths.longest} tokens"
    more = "" if task.lengths.longest == task.max_length else more
    allowed = f"at most {bound}, the longest row of {spec.checkpoint}{more}"
    return _choose_lengths(spec, ConfigError("task.max_length", task.max_length, allowed), fits)


def _choose_lengths(spec: Finetune, error: ConfigError, fits: Mapping[str, int]) -> dict[str, int]:
    """`fits`, printed in a line, unless the user wrote one of these lengths: then `error` with them
    as its fix.
    """
    shown = " ".join(f"{key}={length}" for key, length in fits.items())
    if any(is_asked(spec.provenance, key) for key in fits):
        raise ConfigError(error.path, error.value, error.allowed, fix=shown)
    remark(f"{shown} instead of {error.path}={error.value}: {error.allowed}")
    return dict(fits)


def count_outputs(task: Task) -> int:
    """How many logits the head of a task has to give."""
    stated = task.facts.outputs
    return len(task.names) if stated is None else stated


def fit_task(spec: Finetune, task: Task, *, longest: int = 0) -> Finetune:
    """The spec with the decisions of labels and task: outputs, names, longest row.

    Args:
        longest: The longest row of the side tasks.
    """
    changes = {f"task.{name}": value for name, value in task.decided.items()}
    head = class_of(spec.heads[task.facts.head], spec.plugins)
    if "num_classes" in parameters(head):
        changes[f"heads.{task.facts.head}.num_classes"] = count_outputs(task)
    for name, value in task.requires.head_settings.items():
        changes[f"heads.{task.facts.head}.{name}"] = value
    if task.requires.vectors:  # by the task's own choice, without a pooler
        changes[f"heads.{task.facts.head}.vectors"] = task.requires.vectors
        if spec.heads[task.facts.head].get("late"):  # a setting of pooled rows, which stay unread
            changes[f"heads.{task.facts.head}.late"] = False
        spec = spec.replace({"heads": {k: v for k, v in spec.heads.items() if k != POOLER}})
    for path, value in task.requires.settings.items():
        part, _, name = f"model.{path}".rpartition(".")
        if name in (parameters_of(spec.select(part), spec.plugins) or ()):
            changes[f"{part}.{name}"] = value
    if task.requires.pattern:
        changes["pattern"] = _narrow(thaw(spec.pattern), dict(task.requires.pattern))
    rows = {**thaw(spec), "format": {"max_length": max(longest, task.lengths.longest)}}
    settled = settle_lengths(rows, plugins=spec.plugins)
    return spec.replace({name: settled[name] for name in ("model", "position")} | changes)


def _narrow(pattern: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """The node of a pattern that sees what both see; itself if it is narrowed already."""
    full, both = map(target_of, (Full, And))
    if pattern["_target_"] == full or pattern == more:
        return more
    if pattern["_target_"] == both and more in pattern["parts"]:
        return pattern
    return {"_target_": both, "parts": [pattern, more]}
