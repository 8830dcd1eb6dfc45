"""The contents of a study's folder: its settings, its table if there is one, and the state of each
job.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from plmctl.analysis.runs import METRICS, RECENT, RunLog
from plmctl.core.errors import DataError
from plmctl.storage.job_events import JobEvents, LastEvent
from plmctl.storage.reading import parse_json

STUDY, TABLE, JOBS = "study.json", "table.json", "jobs"
_CELL = re.compile(r"(?:pretrain|.+ of) (?P<arm>.+), seed (?P<seed>\d+)")

Standing = Literal["done", "stopped early", "failed", "still going", "not finished"]
_ENDED: dict[str, Standing] = {"finished": "done", "stopped": "stopped early", "failed": "failed"}


@dataclass(frozen=True)
class JobFolder:
    """One job of a study and its state."""

    verb: str
    label: str  # the first cell that needs it
    state: Standing
    why: str
    folder: Path

    @property
    def arm(self) -> str | None:
        """The arm in its label; None for a job that several arms share."""
        cell = _CELL.fullmatch(self.label)
        return cell["arm"] if cell else None

    @cached_property
    def log(self) -> RunLog:
        """The log of its run so far."""
        return RunLog.read_started(self.folder / "run")


@dataclass(frozen=True)
class StudyFolder:
    """A study, finished or not."""

    folder: Path
    settings: Mapping[str, Any]
    table: Mapping[str, Any] | None  # None where no start has come to its end yet

    @property
    def title(self) -> str:
        """Its title, or the name of its file."""
        return str(
            self.settings.get("title")
            or Path(str(self.settings.get("recipe") or self.folder.name)).stem
        )

    @classmethod
    def read(cls, folder: Path) -> StudyFolder:
        """Read a folder; DataError if it holds no readable study."""
        settings = _json(folder / STUDY)
        if settings is None:
            raise DataError(
                "cannot be read",
                file=folder / STUDY,
                fix="start the study again; what is finished stays so",
            )
        return cls(folder, settings, _json(folder / TABLE))

    @cached_property
    def jobs(self) -> list[JobFolder]:
        """The jobs of the latest start of the study, in the order of their first starts."""
        labels = self._labels
        if labels is None:
            return self._all
        return [
            replace(job, label=labels[job.folder.name])
            for job in self._all
            if job.folder.name in labels
        ]

    @cached_property
    def waiting(self) -> list[str]:
        """The labels of the jobs that the latest start planned and that have not begun."""
        begun = {job.folder.name for job in self._all}
        return [label for name, label in (self._labels or {}).items() if name not in begun]

    @cached_property
    def superseded(self) -> list[JobFolder]:
        """The jobs of an earlier version of the study, which no longer count."""
        labels = self._labels
        return [] if labels is None else [job for job in self._all if job.folder.name not in labels]

    @property
    def _labels(self) -> Mapping[str, str] | None:
        """{job: its label}, as the latest start planned it; None for a study that an older version
        wrote without labels.
        """
        labels = self.settings.get("jobs")
        return labels if isinstance(labels, dict) else None

    @cached_property
    def _all(self) -> list[JobFolder]:
        events = JobEvents(self.folder / JOBS).last
        return [
            _make_job(self.folder / JOBS / name, last)
            for name, last in events.items()
            if last.event != "skipped"
        ]

    def is_finished(self, arm: str) -> bool:
        """Whether a pretraining of an arm is done."""
        return arm in self._finished

    @cached_property
    def _finished(self) -> set[str | None]:
        done = (job for job in self.jobs if job.verb == "pretrain" and job.state == "done")
        return {job.arm for job in done}

    @property
    def table_is_old(self) -> bool:
        """Whether the latest start has not reached its end, where the table is written."""
        files = self.folder / TABLE, self.folder / STUDY
        return files[0].is_file() and files[0].stat().st_mtime_ns < files[1].stat().st_mtime_ns

    @property
    def going(self) -> bool:
        """Whether a job seems to be running."""
        return any(job.state == "still going" for job in self.jobs)


def is_study(folder: Path) -> bool:
    """Whether a folder is that of a study."""
    return (folder / STUDY).is_file()


def find_label(run: Path) -> str:
    """`masked, seed 0` for a pretraining of a study, `sst2 of masked, seed 0` for another job; ""
    for a run of no study.
    """
    job = run.resolve().parent
    with contextlib.suppress(OSError, ValueError, AttributeError):
        settings = parse_json((job.parent.parent / STUDY).read_text(encoding="utf-8"))
        labels = settings.get("jobs") or {}
        return str(labels.get(job.name) or "").removeprefix("pretrain ")
    return ""


def _make_job(folder: Path, last: LastEvent) -> JobFolder:
    verb, label = folder.name.partition("-")[0], last.label or folder.name
    if last.event in _ENDED:
        return JobFolder(verb, label, _ENDED[last.event], last.why, folder)
    files = (folder / "job.json", folder / "log.txt", folder / "run" / METRICS)
    newest = max((file.stat().st_mtime for file in files if file.is_file()), default=0.0)
    going = last.event != "interrupted" and time.time() - newest < RECENT
    return JobFolder(verb, label, "still going" if going else "not finished", "", folder)


def _json(file: Path) -> dict[str, Any] | None:
    """The JSON of a file; None if it is missing or incomplete."""
    try:
        record = parse_json(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return record if isinstance(record, dict) else None
