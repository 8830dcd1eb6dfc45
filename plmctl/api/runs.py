"""A run directory as Python reads it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plmctl.analysis.runs import METRICS, RunLog
from plmctl.api.records import BySplit, RowList
from plmctl.api.settings import check_path
from plmctl.core.terminal import remark
from plmctl.report.subject import ReportedRun, find_subject
from plmctl.storage.lines import read_lines

if TYPE_CHECKING:
    from plmctl.api.model import TrainedModel

VALID = "valid/"


@dataclass(frozen=True)
class RunFolder:
    """A run: where it lies, how it went, what it reached."""

    folder: Path
    plugins: Sequence[str] = ()  # packages outside plmctl that its model may be made of

    @cached_property
    def config(self) -> dict[str, Any]:
        """All its settings."""
        return self._log.config

    @cached_property
    def metrics(self) -> RowList:
        """The records of metrics.jsonl, each with its `step`."""
        return RowList(read_lines(self.folder / METRICS)[0])

    @cached_property
    def scores(self) -> dict[str, dict[str, float]]:
        """{split: {metric: value}}. Fine-tuning: the scores of result.json, or of calibrated
        answers where there is a `decision`, as in reports. Pretraining: the last scores on held-out
        text, as "valid".
        """
        if (result := self._reported.result) is not None:
            return BySplit(result["metrics"])
        last = {
            name.removeprefix(VALID): curve[-1][1]
            for name, curve in self._log.series.items()
            if name.startswith(VALID)
        }
        return BySplit({"valid": last} if last else {})

    @cached_property
    def predictions(self) -> dict[str, RowList]:
        """{split: its predictions} of a fine-tuning, by the same decision as `scores`."""
        found = self._reported.predictions.items()
        return BySplit((name, RowList(rows)) for name, rows in found)

    @property
    def decision(self) -> str:
        """The calibrated decision of its checkpoint (`plmctl eval calibrate=`) in words, if
        `scores` use it; else "". If its task cannot be built, this is "", too, and a line says so.
        """
        decided = self._reported.decided
        return decided.how if decided and decided.applied else ""

    @property
    def checkpoint(self) -> Path:
        """The best checkpoint, else the newest; DataError if it has none."""
        from plmctl.artifacts.loading import find

        return find(self.folder)

    def load(self, **how: Any) -> TrainedModel:
        """Its model; `how` as for `plmctl.load`."""
        from plmctl.api.loading import load

        return load(self.folder, plugins=self.plugins, **how)

    @cached_property
    def _reported(self) -> ReportedRun:
        run = ReportedRun(self.folder.name, self._log, plugins=self.plugins)
        if run.decided and not run.decided.applied:
            remark(f"{self.folder}: its scores are {run.decided.describe()}")
        return run

    @cached_property
    def _log(self) -> RunLog:
        return RunLog.read_started(self.folder)


def read_run(path: str | os.PathLike[str], *, plugins: Sequence[str] = ()) -> RunFolder:
    """The run in a folder, finished or not; DataError if the folder has none."""
    check_path("path", path)
    folder = Path(path).expanduser()
    find_subject([folder])
    return RunFolder(folder, tuple(plugins))


def read_runs(*paths: str | os.PathLike[str]) -> RowList:
    """A row for each run, or job of a sweep (`-m`) in one of the folders: its name, its folder, and
    its scores as "split/metric".
    """
    rows = RowList()
    for path in paths:
        check_path("path", path)
    for run in find_subject([Path(path).expanduser() for path in paths]).runs:
        scores = RunFolder(run.folder, run.plugins).scores
        flat = {f"{s}/{name}": value for s, own in scores.items() for name, value in own.items()}
        rows.append({"run": run.name, "folder": str(run.folder), **flat})
    return rows
