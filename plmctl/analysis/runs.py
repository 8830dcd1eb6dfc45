"""The contents of a run directory: its numbers, its settings, and how far it is."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from plmctl.analysis.scored import find_tested, read_scored
from plmctl.config.plugins import option, recorded
from plmctl.config.saved import read_spec
from plmctl.config.spec import thaw
from plmctl.core.errors import DataError
from plmctl.core.spelling import spell_setting
from plmctl.storage.reading import parse_json, read_json
from plmctl.tasks.scores.below import FILE

Curve = Sequence[tuple[float, float]]  # (x, y), x ascending

Run = Sequence[tuple[float, float, float]]  # (update, x, value)
AXES = {
    "steps": "updates",
    "tokens": "tokens",
    "words": "words",
    "flops": "training FLOPs",
    "time": "seconds",
}
# {kind of budget: the axis on which it is a length}
AXIS = {name: name for name in ("steps", "tokens", "words", "flops")} | {"minutes": "time"}

METRICS, CONFIG, RESULT = "metrics.jsonl", "config.yaml", "result.json"
BASELINES = FILE
# seconds since the last record after which a run that has not reached its end counts as stopped
RECENT = 300
MOST = 2000  # points of a curve: more are not seen in a picture, and a long run may have millions


class _Thinned:
    """A curve of at most `most` points: every k-th record and the last one; k doubles as it grows.

    Runs with the same records keep the same updates, so their means still have common points.
    """

    def __init__(self, most: int | None) -> None:
        self._most, self._every, self._count = most, 1, 0
        self._points: list[tuple[float, float]] = []
        self._last = (0.0, 0.0)

    def add(self, point: tuple[float, float]) -> None:
        """Take the next point."""
        if self._count % self._every == 0:
            self._points.append(point)
            if self._most is not None and len(self._points) >= self._most:
                self._points, self._every = self._points[::2], 2 * self._every
        self._last, self._count = point, self._count + 1

    @property
    def curve(self) -> Curve:
        """The points that are kept, the last one among them."""
        ends = self._points[-1] == self._last
        return self._points if ends else [*self._points, self._last]


@dataclass(frozen=True)
class RunLog:
    """One run directory, read: `series` maps a metric name to its (step, value) points."""

    folder: Path
    config: dict[str, Any]
    series: dict[str, Curve]
    cut: bool = False  # the last line is half written

    @classmethod
    def read(cls, folder: Path, most: int | None = MOST) -> RunLog:
        """Read a run directory; DataError if `metrics.jsonl` is missing, empty or damaged (a last
        line that was cut short is ignored).

        Args:
            most: The points of a curve; None for all of them.
        """
        file = folder / METRICS
        if not file.is_file():
            raise DataError("this is not a run directory: no metrics.jsonl in it", file=folder)
        log = cls.read_started(folder, most)
        if not log.series:
            raise DataError("no metric has been logged yet", file=file)
        return log

    @classmethod
    def read_started(cls, folder: Path, most: int | None = MOST) -> RunLog:
        """Read a run directory that may have logged nothing yet; `most` as for `read`."""
        file = folder / METRICS
        series: defaultdict[str, _Thinned] = defaultdict(lambda: _Thinned(most))
        cut = False
        if file.is_file():
            with file.open(encoding="utf-8", errors="replace", newline="\n") as lines:
                for number, line in enumerate(lines, 1):
                    cut = not line.endswith("\n")
                    for name, point in () if cut else _points(line, file, number):
                        series[name].add(point)
        curves = {name: each.curve for name, each in series.items()}
        return cls(folder, _config(folder), curves, cut=cut)

    @property
    def step(self) -> int:
        """The last update with a record."""
        return int(max((curve[-1][0] for curve in self.series.values()), default=0))

    def last(self, name: str) -> float | None:
        """The last value of a metric; None if it was never logged."""
        return self.series[name][-1][1] if name in self.series else None

    def curves(self, group: str) -> dict[str, Curve]:
        """The curves of `group` ("loss") in training and evaluation: `{"loss/mlm": ...,
        "valid/loss/mlm": ...}`.
        """
        return {
            name: curve
            for name, curve in self.series.items()
            if group in name.split("/")[:-1] or name == group
        }


@dataclass(frozen=True)
class Standing:
    """How far a run is; `why` gives the reason in words."""

    state: Literal["finished", "still going", "stopped", "unknown"]
    why: str


def find_standing(log: RunLog, now: float | None = None) -> Standing:
    """Find how far a run is, from the length in its config and the time of its last record,
    without a look at processes.
    """
    share, length = _done(log)
    if (share is not None and share >= 1) or (log.folder / RESULT).is_file():
        return Standing("finished", f"{log.step:,} updates")
    file = log.folder / METRICS
    age = (time.time() if now is None else now) - (
        file if file.is_file() else log.folder
    ).stat().st_mtime
    counted = (
        f"{log.step:,} updates, {share:.0%} of {length}"
        if share is not None
        else f"{log.step:,} updates{length}"
    )
    if age < RECENT:
        return Standing(
            "still going", f"{counted}; last record {age:.0f} s ago: numbers are those up to now"
        )
    if share is None:
        return Standing("unknown", f"{counted}; its length in updates is not written down")
    verb = "finetune" if "task" in log.config else "pretrain"
    again = f"plmctl {verb} --resume {spell_setting('run.dir', log.folder)}"
    again += option(recorded(log.config))
    return Standing("stopped", f"{counted}; go on with: {again}")


def _done(log: RunLog) -> tuple[float | None, str]:
    """(the share that is done, None if the length of an epoch is unknown; the length in words)."""
    train = log.config.get("train") or {}
    so_far = {
        "steps": log.step,
        "tokens": log.last("tokens") or 0.0,
        "words": log.last("words") or 0.0,
        "minutes": (log.last("seconds") or 0.0) / 60,
    }
    for name, value in so_far.items():
        if train.get(name):
            return value / train[name], f"{train[name]:,} {'updates' if name == 'steps' else name}"
    return None, f" of {train['epochs']} epochs" if train.get("epochs") else ""


def read_result(folder: Path) -> dict[str, Any] | None:
    """result.json of a fine-tuned run or an evaluation;
    None if it is missing or incomplete.
    """
    file = folder / RESULT
    try:
        result = parse_json(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return result if isinstance(result, dict) and isinstance(result.get("metrics"), dict) else None


def keeps_decision(folder: Path) -> bool:
    """Whether `plmctl eval calibrate=` kept something in a checkpoint of a run."""
    return any(folder.glob("checkpoints/*/decision.json"))


def is_evaluated(folder: Path) -> bool:
    """Whether `plmctl eval` has changed or added scores of a run."""
    return keeps_decision(folder) or find_tested(folder) is not None or bool(read_scored(folder))


def read_baselines(folder: Path) -> dict[str, dict[str, dict[str, float]]]:
    """baselines.json of a fine-tuned run; empty if it is missing."""
    file = folder / BASELINES
    return dict(read_json(file)) if file.is_file() else {}


def read_predictions(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """{split: predictions} of a fine-tuned run; a file ends at the first line that is not JSON."""
    predictions = {}
    for file in sorted((folder / "predictions").glob("*.jsonl")):
        rows = read_rows(file)
        if rows:
            predictions[file.stem] = rows
    return predictions


def read_rows(file: Path) -> list[dict[str, Any]]:
    """The lines of a file of predictions, up to the first one that is not JSON."""
    return list(_json_lines(file))


def _json_lines(file: Path) -> Iterator[dict[str, Any]]:
    for line in file.read_text(encoding="utf-8").splitlines():
        try:
            yield parse_json(line)
        except ValueError:
            return


def _points(line: str, file: Path, number: int) -> list[tuple[str, tuple[float, float]]]:
    try:
        record = parse_json(line)
    except ValueError:
        record = None
    if not isinstance(record, dict) or not isinstance(record.get("step"), int | float):
        raise DataError("not a JSON object with a 'step'", file=file, line=number)
    step = float(record["step"])
    numbers = {
        name: value
        for name, value in record.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
    return [
        (name, (step, float(value)))
        for name, value in numbers.items()
        if name not in ("step", "share")
    ]


def _config(folder: Path) -> dict[str, Any]:
    return dict(thaw(read_spec(folder) or {}))


def read_curve(
    log: RunLog, name: str, by: str, flops_per_token: float
) -> list[tuple[float, float, float]]:
    """(update, x, value) of a metric; between two records of the counter, x is interpolated
    linearly.
    """
    counter = {"tokens": "tokens", "words": "words", "flops": "tokens", "time": "seconds"}.get(by)
    scale = flops_per_token if by == "flops" else 1.0
    points = []
    for step, value in log.series.get(name, ()):
        x = step if counter is None else _between(log.series.get(counter, ()), step)
        points.append((step, x * scale, value))
    return points


def average_curves(runs: Sequence[Run]) -> Curve:
    """The mean over seeds, at the updates where every seed has a value."""
    return [(x, statistics.fmean(values)) for x, values in list_common_steps(runs)]


def list_common_steps(runs: Sequence[Run]) -> list[tuple[float, list[float]]]:
    """(mean of x, values) at the updates where every run has a value."""
    by_step = [{step: (x, value) for step, x, value in run} for run in runs]
    steps = sorted(set.intersection(*(set(points) for points in by_step))) if runs else []
    return [
        (statistics.fmean(p[step][0] for p in by_step), [p[step][1] for p in by_step])
        for step in steps
    ]


def _between(counter: Curve, step: float) -> float:
    """The counter at an update, linear between its records, from 0 at the start."""
    before = (0.0, 0.0)
    for at, value in counter:
        if at >= step:
            return (
                before[1] + (value - before[1]) * (step - before[0]) / (at - before[0])
                if at > before[0]
                else value
            )
        before = (at, value)
    return before[1]
