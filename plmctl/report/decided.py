"""The predictions that training left in a run, as what `plmctl eval calibrate=` kept in its
checkpoint decides them: those of the newest evaluation. Those of test are by `plmctl eval`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from plmctl.analysis.runs import keeps_decision, read_predictions, read_result, read_rows
from plmctl.analysis.scored import FOLDER, ScoredFiles, find_tested, read_scored
from plmctl.artifacts.kept_decision import FILE, read_decision
from plmctl.artifacts.loading import find
from plmctl.artifacts.model_facts import reading
from plmctl.config.build import build
from plmctl.config.plugins import confirm, named
from plmctl.config.saved import CONFIG, read_spec
from plmctl.config.spec import thaw
from plmctl.core.errors import PlmctlError
from plmctl.core.rounding import round_floats
from plmctl.core.spelling import spell_line
from plmctl.core.terminal import counted
from plmctl.report.text import format_number
from plmctl.tasks.calibration import LabelDecision, describe_answered, measure_answered
from plmctl.tasks.intervals import find_intervals
from plmctl.tasks.scores.below import TESTS
from plmctl.tasks.scores.metrics import spell_metric
from plmctl.tasks.task import Task, as_task
from plmctl.use.calibrating import decide_by_kept
from plmctl.use.simple_models import find_simple_tests


class OtherScore(NamedTuple):
    """A result of `plmctl eval` on another file than a run's own, or by other settings.

    Args:
        name: The name of its file in `eval/`.
        metric: The first metric of the task.
        value: Its score.
        interval: The 95% interval; None without one.
        scored: The file and conditions.
    """

    name: str
    metric: str
    value: float
    interval: tuple[float, float] | None
    scored: ScoredFiles

    def describe(self, *, public: bool, best: str) -> str:
        """The score with its interval, its rows and its file."""
        ends = " to ".join(map(format_number, self.interval or ()))
        within = f" ({ends})" if ends else ""
        where = self.scored.describe(public=public, best=best)
        rows = f"{counted(self.scored.rows, 'row')} of " if self.scored.own else ""
        known, count = self.scored.answered, self.scored.rows
        kept = f"; answered: {describe_answered(known, count)}" if known else ""
        return (
            f"{self.name}: {self.metric} {format_number(self.value)}{within}, {rows}{where}{kept}"
        )


class DecidedRun(NamedTuple):
    """The results of a run by its decision.

    Args:
        result: The entries of result.json, with the scores and intervals of these predictions.
        predictions: The predictions of each split.
        how: The decision in words; "" without one.
        applied: whether they are by that decision; else `how` says why not.
        decision: The decision; None without one.
        note: A remark on the answers to test.
        scored: The file and conditions of test by `plmctl eval`; None where training has scored it.
        best: The name of the checkpoint of the run.
        others: The scores of other files by `plmctl eval`.
        answered: {split: the rows that the decision answers, in words}.
    """

    result: dict[str, Any]
    predictions: dict[str, list[dict[str, Any]]]
    how: str
    applied: bool
    decision: LabelDecision | None = None
    note: str = ""
    scored: ScoredFiles | None = None
    best: str = ""
    others: Sequence[OtherScore] = ()
    answered: Mapping[str, str] = {}

    def describe_evaluated(self, *, public: bool = False) -> list[str]:
        """Lines on evaluations. First the file and conditions of test, where they are not the run's
        own; then the rows of each split that the decision answers; then scores of other files.
        """
        how: Any = {"public": public, "best": self.best}
        test = self.scored.describe(**how) if self.scored else ""
        answered = [f"answered of {split}: {said}" for split, said in self.answered.items()]
        others = [each.describe(**how) for each in self.others]
        return [*([f"test is {test}"] if test else []), *answered, *others]

    def describe(self, answers: str = "calibrated answers") -> str:
        """The kind of these scores, behind "scores are"; "" without a decision."""
        if not (self.how and self.applied):
            return self.how
        return f"those of {answers}: {self.how}; the loss is without that"

    def is_fitted_to(self, split: str, rows: int) -> bool:
        """Whether a part of the decision was fitted to so many rows of a split."""
        known = self.decision.fitted.values() if self.decision else ()
        return any(own.has_name(split, rows) for origins in known for own in origins)


def find_decided(run: Path) -> Path | None:
    """The checkpoint of a run, if a decision is kept in it."""
    if not keeps_decision(run):
        return None
    try:
        folder = find(run)
    except PlmctlError:  # its weights are gone: there is no newer evaluation
        return None
    return folder if (folder / FILE).is_file() else None


def decide_run(run: Path, plugins: Sequence[str] = ()) -> DecidedRun | None:
    """The predictions and scores of a run by its decision, those of test and of other files by
    their evaluations; None without any. As training left them where the task cannot be built, which
    `how` says.
    """
    checkpoint, tested = find_decided(run), find_tested(run)
    if checkpoint is None and tested is None and not read_scored(run):
        return None
    result, found = read_result(run) or {}, read_predictions(run)
    try:
        task = read_task(run, plugins)
    except PlmctlError:
        task = None
    if task is None:
        how = f"from before calibration; plmctl eval checkpoint={run} has those with it"
        return DecidedRun(result, found, how, applied=False) if checkpoint else None
    metrics, intervals, how = dict(result.get("metrics", {})), dict(result.get("intervals", {})), ""
    note, changed = "", list[str]()
    decision, scored = None, None
    if checkpoint is not None:
        decision = read_decision(checkpoint)
        for split, rows in found.items():
            decided, said = decide_by_kept(checkpoint, task, rows)
            if said and split in metrics:
                found[split], how = decided, said
                metrics[split] = round_floats({**metrics[split], **task.score(decided)})
                intervals[split] = round_floats(find_intervals(task, decided))
                changed.append(split)
    if tested is not None and (rows := read_rows(tested)) and _is_labelled(rows[0]):
        found["test"], metrics["test"] = rows, round_floats(task.score(rows))
        intervals["test"] = round_floats(find_intervals(task, rows))
        result["examples"] = {**result.get("examples", {}), "test": len(rows)}
        note, scored = _compare_times(tested, checkpoint, run), read_scored(run).get(tested.stem)
        changed.append("test")
    tests = find_simple_tests(run, {split: found[split] for split in changed}, task)
    tests = {**result.get(TESTS, {}), **round_floats(tests)}
    result = {**result, "metrics": metrics, "intervals": intervals, TESTS: tests}
    own = tested.stem if tested else ""
    about: Any = {"decision": decision, "note": note, "scored": scored}
    about["answered"] = _describe_answered(decision, {split: found[split] for split in changed})
    about["others"] = [each for each in _score_others(run, task, result) if each.name != own]
    return DecidedRun(result, found, how, applied=True, best=name_best(run), **about)


def _score_others(run: Path, task: Task, result: Mapping[str, Any]) -> Iterator[OtherScore]:
    """The scores of labelled rows that are not a split of the run as training has it."""
    best, metric = name_best(run), task.metrics[0]
    for name, about in read_scored(run).items():
        file = run / FOLDER / f"{name}.jsonl"
        rows = read_rows(file) if about.describe(best=best) and file.is_file() else []
        if rows and _is_labelled(rows[0]):
            value = task.score(rows).get(metric, math.nan)
            interval = find_intervals(task, rows).get(metric)
            spelled = spell_metric(metric, result.get("percent") or ())
            yield OtherScore(name, spelled, value, interval, about)


def _describe_answered(
    decision: LabelDecision | None, found: Mapping[str, Sequence[dict[str, Any]]]
) -> dict[str, str]:
    """{split: the rows that have an answer} by a decision with a bound of unsure."""
    if decision is None or not decision.sure:
        return {}
    return {
        split: describe_answered(measure_answered(rows, decision.goal), len(rows))
        for split, rows in found.items()
    }


def name_best(run: Path) -> str:
    """The name of the checkpoint that a run counts by; "" without one."""
    try:
        return find(run).name
    except PlmctlError:
        return ""


def _is_labelled(row: Mapping[str, Any]) -> bool:
    return row.get("golds", row.get("gold")) is not None


def _compare_times(tested: Path, checkpoint: Path | None, run: Path) -> str:
    """A remark on answers that are older than the decision; "" for others."""
    if checkpoint is None or (checkpoint / FILE).stat().st_mtime <= tested.stat().st_mtime:
        return ""
    line = spell_line("eval", run, "split=test")
    return f"its answers to test are from before calibration; {line} has those with it"


def read_task(folder: Path, plugins: Sequence[str] = ()) -> Task | None:
    """The task of the run in `folder`; None where there is no run."""
    config = thaw(read_spec(folder) or {}) if (folder / CONFIG).is_file() else {}
    if not config.get("task") or not config.get("model"):
        return None
    parts = [config.get(name) for name in ("task", "model", "pattern")]
    confirm(named(parts), plugins, of=folder)
    return as_task(build(config["task"], reading(config, plugins), plugins, path="task"))
