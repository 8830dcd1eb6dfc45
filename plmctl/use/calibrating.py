"""The decision that `plmctl eval calibrate=` fits. It is stored in the checkpoint and used by later
evaluations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from plmctl.artifacts.kept_decision import KEY, read_decision, write_decision
from plmctl.artifacts.loading import Loaded, Source
from plmctl.core.errors import ConfigError, DataError, UsageError
from plmctl.core.rounding import round_floats
from plmctl.core.spelling import spell_line
from plmctl.core.terminal import WARN, remark
from plmctl.tasks.calibration import (
    SURE,
    THRESHOLD,
    UNSURE,
    LabelDecision,
    apply_decision,
    fit_decision,
    fit_sure,
    has_labels,
    measure_calibration,
    measure_loss,
)
from plmctl.tasks.fitted_rows import FittedRows
from plmctl.tasks.task import Task
from plmctl.use.predict import Told

WORSE = "it is larger: the log loss is what a temperature makes least"
FEW = 100  # examples, of which what is fitted to them says little


def calibrate(
    source: Source,
    task: Task,
    origin: FittedRows,
    rows: Sequence[dict[str, Any]],
    fitted: Sequence[str],
    *,
    abstain: float | None = None,
) -> None:
    """Fit a temperature or thresholds to labelled predictions, and keep them in the checkpoint.

    Args:
        source: The folder of the model.
        origin: The rows, as the decision names them.
        rows: The predictions on them, without a decision.
        fitted: The numbers to fit; none: the kept ones stay.
        abstain: The wished accuracy of the rows that are answered; None: as before.
    """
    if source.published:
        allowed = "a checkpoint of plmctl: a published folder is not written to"
        fix = spell_line("convert", source.folder, "--to", "plmctl", "--out", "converted")
        name, value = ("calibrate", list(fitted)) if fitted else ("abstain", abstain)
        raise ConfigError(name, value, allowed, fix=fix)
    kept = read_decision(source.folder) or LabelDecision()
    decision = kept
    if fitted or kept == LabelDecision():
        decision = fit_decision(task, rows, fitted, origin=origin, kept=kept)
    if fitted and kept.threshold is not None and not {THRESHOLD, f"{THRESHOLD}s"} & {*fitted}:
        remark(f"calibrate: {THRESHOLD} is fitted again, to the new probabilities")
    if abstain is not None:
        sure = fit_sure(apply_decision(task, rows, decision), abstain)
        decision = _bound(decision, sure, abstain, origin)
    elif kept.sure:
        decision = _bound_again(source, task, origin, rows, decision, kept)
    write_decision(decision, source.folder)


def _bound(decision: LabelDecision, sure: float, goal: float, origin: FittedRows) -> LabelDecision:
    """The decision with a bound of unsure that these rows gave."""
    return replace(decision, sure=sure, goal=goal, fitted={**decision.fitted, SURE: (origin,)})


def _bound_again(
    source: Source,
    task: Task,
    origin: FittedRows,
    rows: Sequence[dict[str, Any]],
    decision: LabelDecision,
    kept: LabelDecision,
) -> LabelDecision:
    """A new decision with the bound for the goal of the old one; without a bound where that is not
    known or not reached, which a warning says.
    """
    old, goal, why = f"{kept.sure:.4g}", kept.goal, "its goal is not known"
    if goal:
        try:
            sure = fit_sure(apply_decision(task, rows, decision), goal)
        except UsageError as error:
            why = str(error).partition("\n")[0].partition(": ")[2]
        else:
            again = f"fitted again for accuracy {goal:g}: it was {old}, and is {sure:.4g}"
            remark(f"calibrate: the bound of {UNSURE} is {again}")
            return _bound(decision, sure, goal, origin)
    line = spell_line("eval", source.folder, f"abstain={goal or 0.95:g}", f"split={origin.split}")
    what = f"the bound of {UNSURE}, {old}, is of the old probabilities, and goes: {why}"
    remark(f"calibrate: {what}\n  fix: {line}", WARN)
    return decision


def decide_again(
    loaded: Loaded, task: Task, rows: list[dict[str, Any]], digits: int | None = None
) -> tuple[list[dict[str, Any]], str]:
    """(the predictions as the checkpoint's decision has them, what it is); both as they are where
    it has none.

    `digits`: how many significant ones its probabilities keep; None: all.
    """
    return decide_by_kept(loaded.source.folder, task, rows, digits)


def decide_by_kept(
    folder: Path, task: Task, rows: list[dict[str, Any]], digits: int | None = None
) -> tuple[list[dict[str, Any]], str]:
    """`decide_again` by what is kept in the folder of a checkpoint."""
    return decide(read_decision(folder), folder, task, rows, digits)


def decide(
    decision: LabelDecision | None,
    folder: Path,
    task: Task,
    rows: list[dict[str, Any]],
    digits: int | None = None,
) -> tuple[list[dict[str, Any]], str]:
    """`decide_again` by a decision that has been read from a folder."""
    if decision is not None:
        decision.check(task, rows[0])
    if decision is None or not isinstance(rows[0].get("probabilities"), Mapping | list):
        return rows, ""
    if decision.label is not None and decision.label not in (known := rows[0]["probabilities"]):
        what = f"a threshold of the label {decision.label}; the labels are {', '.join(known)}"
        fix = f"delete {KEY} in its config.json, which is of other labels"
        raise DataError(what, file=folder, fix=fix)
    decided = apply_decision(task, rows, decision)
    return decided if digits is None else round_floats(decided, digits), decision.describe()


def warn_of_fit(
    before: Sequence[dict[str, Any]], after: Sequence[dict[str, Any]], metric: str
) -> None:
    """Warn where the calibration error rises though the loss falls, or the examples are few.

    `metric`: that of a threshold.
    """
    if len(before) < FEW:
        few = f"fitted to {len(before)} examples, which say little of others"
        remark(f"calibrate: {few}; a split of {FEW} or more is better", WARN)
    if has_labels(before[0]) and has_labels(after[0]):
        was, now = (measure_calibration(rows)[0] for rows in (before, after))
        if now > was:
            rises = f"the calibration error rises from {was:.4f} to {now:.4f}"
            fitted = f"a temperature is fitted to the log loss, a threshold to {metric}"
            remark(f"calibrate: {rises}: {fitted}", WARN)


def describe_loss(before: Sequence[dict[str, Any]], after: Sequence[dict[str, Any]]) -> Told:
    """The loss that the temperature makes least, with it and without."""
    old, new = measure_loss(before), measure_loss(after)
    return _compare(old, new)


def describe_calibration(
    before: Sequence[dict[str, Any]], after: Sequence[dict[str, Any]]
) -> Told | None:
    """The expected calibration error, before and after; None of several labels each."""
    if not (has_labels(before[0]) and has_labels(after[0])):
        return None
    was, now = (measure_calibration(rows)[0] for rows in (before, after))
    told = _compare(was, now)
    return replace(told, text=f"{told.text}; {WORSE}") if now > was else told


def _compare(old: float, new: float) -> Told:
    more = "" if old == new else f", without the temperature {old:.4f}"
    return Told(f"{new:.4f}{more}", new)
