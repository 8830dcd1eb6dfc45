"""What `plmctl eval calibrate=` fits, kept in the checkpoint, and used by later evaluations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypedDict

from plmctl.core.errors import ConfigError
from plmctl.run.loading import Loaded
from plmctl.run.schema import Evaluate
from plmctl.storage.atomic import write_json
from plmctl.storage.reading import read_json
from plmctl.tasks.base import Task
from plmctl.tasks.calibration import (
    LabelDecision,
    apply_decision,
    fit_decision,
    has_labels,
    measure_calibration,
)

FILE = "decision.json"  # of a checkpoint


class _Kept(TypedDict):
    temperature: float
    threshold: float | dict[str, float] | None
    label: str | None
    fitted: str


def read_decision(folder: Path) -> LabelDecision | None:
    """What an earlier evaluation fitted for a checkpoint; None where there is none."""
    file = folder / FILE
    return LabelDecision(**read_json(file, _Kept)) if file.is_file() else None


def calibrate(
    spec: Evaluate, loaded: Loaded, task: Task, split: str, rows: Sequence[dict[str, Any]]
) -> None:
    """Fit what `spec.calibrate` names to labelled predictions, and keep it in the checkpoint."""
    if loaded.source.published:
        allowed = "of a checkpoint of plmctl: a published folder is not written to"
        fix = f"plmctl convert {spec.checkpoint} --to plmctl --out converted"
        raise ConfigError("calibrate", list(spec.calibrate), allowed, fix=fix)
    decision = fit_decision(task, rows, spec.calibrate, split=split)
    write_json(loaded.source.folder / FILE, asdict(decision))


def decide_again(
    loaded: Loaded, task: Task, rows: list[dict[str, Any]]
) -> tuple[list[dict[str, Any]], str]:
    """(the predictions as the checkpoint's decision has them, what it is); both as they are where
    it has none.
    """
    decision = read_decision(loaded.source.folder)
    if decision is None or not isinstance(rows[0].get("probabilities"), dict | list):
        return rows, ""
    return apply_decision(task, rows, decision), decision.describe()


def describe_calibration(before: Sequence[dict[str, Any]], after: Sequence[dict[str, Any]]) -> str:
    """The expected calibration error, before and after; "" of several labels each."""
    if not (has_labels(before[0]) and has_labels(after[0])):
        return ""
    was, now = (measure_calibration(rows)[0] for rows in (before, after))
    return f"{now:.4f}" if was == now else f"{now:.4f}, without the temperature {was:.4f}"
