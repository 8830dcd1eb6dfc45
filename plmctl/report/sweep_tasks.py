"""The table of a sweep over tasks: the score of each task, how sure it is, and the average."""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plmctl.analysis.runs import RunLog, read_baselines, read_result
from plmctl.report.sweeps import ABSENT, REPEATED, TASK, find_value, list_varied, name_jobs
from plmctl.storage.atomic import write_text
from plmctl.storage.formulas import guard
from plmctl.tasks.scores.below import CHOICE, LEAKED

SHEET = "tasks.csv"
HEAD = ["task", "metric", "runs", "mean", "deviation", "95% over examples"]
HEAD += ["best without pretraining", "beaten"]
SHORT, KNOWN = "†", "‡"  # marks of scores after few updates, and of texts of dev in train
FEW = 50  # updates, below which a score says little of a model


@dataclass(frozen=True)
class TaskScore:
    """The score of a task in runs that differ in seeds or folds alone.

    Args:
        settings: The other settings that the sweep varies; "" without any.
        metric: The metric that chooses the checkpoints; "" where no run has ended.
        larger: Whether a larger value is better.
        unit: `%` where values are in percent; "" of losses, and of results of older versions, which
            do not say what is in percent.
        values: The score of dev of each run that has ended.
        intervals: Their 95% intervals, as far as they have any.
        simple: {model without pretraining: its mean score on the same examples}.
        choices: The validations of which dev chose the best, of each run that chose.
        known: The share of dev whose text is in train; the mean over runs.
    """

    settings: str
    task: str
    asked: int
    metric: str = ""
    larger: bool = True
    unit: str = ""
    values: Sequence[float] = ()
    intervals: Sequence[tuple[float, float]] = ()
    simple: Mapping[str, float] | None = None
    updates: Sequence[int] = ()
    choices: Sequence[int] = ()
    known: float = 0.0

    @property
    def marks(self) -> str:
        """The signs behind the score, which notes below the table explain."""
        return SHORT * self.is_short + KNOWN * (self.known > 0)

    @property
    def is_short(self) -> bool:
        """Whether a run had few updates."""
        return bool(self.updates) and min(self.updates) < FEW

    @property
    def mean(self) -> float | None:
        """The mean over runs; None without any."""
        return statistics.fmean(self.values) if self.values else None

    @property
    def deviation(self) -> float | None:
        """The sample deviation over runs; None of less than two."""
        return statistics.stdev(self.values) if len(self.values) > 1 else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95% interval over examples; of several runs the mean of its ends."""
        if not self.intervals:
            return None
        low, high = (statistics.fmean(ends) for ends in zip(*self.intervals, strict=True))
        return low, high

    @property
    def best(self) -> tuple[str, float] | None:
        """The best model without pretraining, and its score."""
        choose = max if self.larger else min
        return choose((self.simple or {}).items(), key=lambda each: each[1], default=None)

    @property
    def beaten(self) -> str:
        """Whether the mean is better than `best`: yes, no, or within the interval; "" for no model
        to compare with.
        """
        if self.best is None or self.mean is None:
            return ""
        other = self.best[1]
        if (self.mean <= other) if self.larger else (self.mean >= other):
            return "no"
        low, high = self.interval or (self.mean, self.mean)
        return "within the interval" if low <= other <= high else "yes"

    def spell(self) -> list[str]:
        """A row under `HEAD`."""
        low, high = self.interval or (None, None)
        name, other = self.best or ("", None)
        done = len(self.values)
        return [
            self.task,
            self.metric or ABSENT,
            str(done) if done == self.asked else f"{done} of {self.asked}",
            f"{self._number(self.mean)} {self.marks}".rstrip(),
            self._number(self.deviation),
            ABSENT if low is None else f"{self._number(low)} to {self._number(high)}",
            f"{name} {self._number(other)}".strip(),
            self.beaten or ABSENT,
        ]

    def _number(self, value: float | None) -> str:
        return ABSENT if value is None else f"{value:.4g}{self.unit}"


def read_tasks(jobs: Sequence[dict[str, Any]]) -> list[TaskScore]:
    """The tasks of a sweep over them; empty of other sweeps."""
    if TASK not in list_varied(jobs):
        return []
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for job, name in zip(jobs, name_jobs(jobs, without=(TASK, *REPEATED)), strict=True):
        groups.setdefault((name, find_value(job, TASK)), []).append(job)
    order = dict.fromkeys(name for name, _ in groups)
    return [_read_task(*key, groups[key]) for name in order for key in groups if key[0] == name]


def _read_task(settings: str, task: str, jobs: Sequence[dict[str, Any]]) -> TaskScore:
    ended = [job for job in jobs if not job["code"] and job.get("best")]
    done = [job for job in ended if job["best"][0] in job["metrics"]]
    if not done:
        return TaskScore(settings, task, len(jobs))
    key, larger = done[0]["best"]
    metric = key.removeprefix("valid/")
    results = [read_result(Path(job["dir"])) or {} for job in done]
    stated = all("percent" in result for result in results)
    shares = larger and stated and metric not in results[0]["percent"]
    times = 100 if shares else 1
    pairs = [((each.get("intervals") or {}).get("dev") or {}).get(metric) for each in results]
    models = [read_baselines(Path(job["dir"])).get("dev", {}) for job in done]
    shared = [name for name in models[0] if all(metric in own.get(name, {}) for own in models)]
    chosen = [(each.get(CHOICE) or {}).get("dev") for each in results]
    leaks = [_share_known(each) for each in results]
    return TaskScore(
        settings,
        task,
        len(jobs),
        metric,
        larger,
        unit="%" if larger and stated else "",
        values=[times * job["metrics"][key] for job in done],
        intervals=[(times * low, times * high) for low, high in filter(None, pairs)],
        simple={n: times * statistics.fmean(own[n][metric] for own in models) for n in shared},
        updates=[n for job in done if (n := RunLog.read_started(Path(job["dir"]), 1).step)],
        choices=[count for count in chosen if count],
        known=statistics.fmean(leaks),
    )


def _share_known(result: Mapping[str, Any]) -> float:
    """The share of dev whose text is in train, by a result."""
    count = (result.get(LEAKED) or {}).get("dev", 0)
    return float(count / result["examples"]["dev"]) if count else 0.0


def make_table(scores: Sequence[TaskScore]) -> tuple[list[str], list[list[str]]]:
    """(head, rows): a row for each task, and one for the average of each of the other settings."""
    rows, named = list[list[str]](), any(each.settings for each in scores)
    for settings, own in _group(scores):
        marks = "".join(mark for mark in (SHORT, KNOWN) if any(mark in one.marks for one in own))
        average = [
            [words, "", "", f"{mean:.4g}% {marks}".rstrip(), *[""] * 4]
            for words, mean in _average(own)
        ]
        rows += [[settings] * named + row for row in [*(each.spell() for each in own), *average]]
    return ["settings"] * named + HEAD, rows


def list_notes(scores: Sequence[TaskScore]) -> list[str]:
    """The lines below the table that say what keeps scores from being compared."""
    few = _name([each for each in scores if each.is_short], lambda each: _span(each.updates))
    known = _name([each for each in scores if each.known], lambda each: f"{each.known:.2%}")
    lengths = {_span(each.updates) for each in scores if each.updates}
    updates = _name([each for each in scores if each.updates], lambda each: _span(each.updates))
    chosen = _name([each for each in scores if each.choices], lambda each: _span(each.choices))
    alone = ", ".join(dict.fromkeys(e.task for e in scores if e.values and not e.simple))
    lines = {
        f"{SHORT} updates below {FEW}, hardly a training: {few}": few,
        f"{KNOWN} share of dev whose texts are in train, so scores are too high: {known}": known,
        f"updates: {updates}": updates if len(lengths) > 1 else "",
        f"validations of which dev chose the best, so scores are a little high: {chosen}": chosen,
        f"no model without pretraining answers these tasks: {alone}": alone,
    }
    return [line for line, named in lines.items() if named]


def _name(scores: Sequence[TaskScore], tell: Callable[[TaskScore], str]) -> str:
    return ", ".join(
        " ".join(filter(None, (each.settings, each.task, tell(each)))) for each in scores
    )


def _span(counts: Sequence[int]) -> str:
    """`20`, or `18 to 20` where runs differ."""
    low, high = min(counts), max(counts)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def describe_averages(scores: Sequence[TaskScore]) -> list[str]:
    """A line on the average over tasks for each of the other settings."""
    return [
        f"{settings}: {words}: {mean:.4g}%".removeprefix(": ")
        for settings, own in _group(scores)
        for words, mean in _average(own)
    ]


def write(scores: Sequence[TaskScore], folder: Path) -> None:
    """Write a row for each task as comma-separated values; nothing without tasks."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    head = ["settings", "task", "metric", "unit", "runs", "mean", "deviation", "low", "high"]
    head += ["best_without_pretraining", "its_score", "beaten", "updates", "dev_in_train"]
    writer.writerow([*head, "validations"])
    for each in scores:
        words = [guard(each.settings), guard(each.task), guard(each.metric), each.unit]
        numbers = [len(each.values), each.mean, each.deviation, *(each.interval or ("", ""))]
        limits = [_span(each.updates) if each.updates else "", f"{each.known:.4g}"]
        limits += [_span(each.choices) if each.choices else ""]
        writer.writerow([*words, *numbers, *(each.best or ("", "")), each.beaten, *limits])
    if scores:
        write_text(folder / SHEET, text.getvalue())


def _group(scores: Sequence[TaskScore]) -> Iterator[tuple[str, list[TaskScore]]]:
    for settings in dict.fromkeys(each.settings for each in scores):
        yield settings, [each for each in scores if each.settings == settings]


def _average(scores: Sequence[TaskScore]) -> list[tuple[str, float]]:
    """[(`average of 3 of 4 tasks`, the mean of their means in percent)]; [] of less than two
    tasks, or where one has no percent. The words say so where metrics differ.
    """
    means = [each.mean for each in scores if each.mean is not None]
    if len(means) < 2 or not all(each.unit for each in scores if each.values):
        return []
    count = f"{len(means)} of {len(scores)}" if len(means) < len(scores) else len(means)
    several = len({each.metric for each in scores if each.values}) > 1
    by = ", each by its first metric" if several else ""
    return [(f"average of {count} tasks{by}", statistics.fmean(means))]
