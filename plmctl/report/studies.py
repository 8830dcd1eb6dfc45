"""What a study's folder says about itself: its settings, its table where it has one, and how
each job stands.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from plmctl.core.errors import DataError
from plmctl.report.runs import METRICS, RECENT, RunLog

STUDY, TABLE, JOBS = "study.json", "table.json", "jobs"
_CELL = re.compile(r"(?:pretrain|.+ of) (?P<arm>.+), seed (?P<seed>\d+)")


@dataclass(frozen=True)
class JobFolder:
    """One job of a study, as it stands."""

    verb: str
    label: str  # the first cell that asked for it
    state: Literal["done", "stopped early", "failed", "still going", "not finished"]
    why: str
    folder: Path

    @property
    def arm(self) -> str | None:
        found = _CELL.fullmatch(self.label)
        return found["arm"] if found else None

    @cached_property
    def log(self) -> RunLog:
        return RunLog.begun(self.folder / "run")


@dataclass(frozen=True)
class StudyFolder:
    """A study, finished or not."""

    folder: Path
    settings: Mapping[str, Any]
    table: Mapping[str, Any] | None  # None where no start has come to its end yet

    @property
    def title(self) -> str:
        return str(
            self.settings.get("title")
            or Path(str(self.settings.get("recipe") or self.folder.name)).stem
        )

    @classmethod
    def read(cls, folder: Path) -> StudyFolder:
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
        """Those of the study as it was last started, in the order in which they were begun."""
        labels = self._labels
        if labels is None:
            return self._all
        return [
            replace(job, label=labels[job.folder.name])
            for job in self._all
            if job.folder.name in labels
        ]

    @cached_property
    def superseded(self) -> list[JobFolder]:
        """Those of the study as it was before it was edited, which count for nothing any more."""
        labels = self._labels
        return [] if labels is None else [job for job in self._all if job.folder.name not in labels]

    @property
    def _labels(self) -> Mapping[str, str] | None:
        """{job: what it is}, as the last start planned it; None of a study from before that was
        written down.
        """
        found = self.settings.get("jobs")
        return found if isinstance(found, dict) else None

    @cached_property
    def _all(self) -> list[JobFolder]:
        places = [
            place for place in (self.folder / JOBS).glob("*") if (place / "job.json").is_file()
        ]
        return [
            _job(place)
            for place in sorted(places, key=lambda place: (place / "job.json").stat().st_mtime_ns)
        ]

    @property
    def table_is_old(self) -> bool:
        """Whether the last start has not come to the end at which the table is made."""
        files = self.folder / TABLE, self.folder / STUDY
        return files[0].is_file() and files[0].stat().st_mtime_ns < files[1].stat().st_mtime_ns

    @property
    def going(self) -> bool:
        return any(job.state == "still going" for job in self.jobs)


def is_study(folder: Path) -> bool:
    return (folder / STUDY).is_file()


def _job(place: Path) -> JobFolder:
    record = _json(place / "job.json") or {}
    done, error = _json(place / "done.json"), _json(place / "error.json")
    verb, label = str(record.get("verb", "?")), str(record.get("label", place.name))
    if done is not None:
        return JobFolder(
            verb,
            label,
            "stopped early" if done.get("stopped") else "done",
            str(done.get("stopped") or ""),
            place,
        )
    if error is not None:
        return JobFolder(verb, label, "failed", str(error.get("error", "")), place)
    newest = max(
        file.stat().st_mtime
        for file in (place / "job.json", place / "log.txt", place / "run" / METRICS)
        if file.is_file()
    )
    return JobFolder(
        verb, label, "still going" if time.time() - newest < RECENT else "not finished", "", place
    )


def _json(file: Path) -> dict[str, Any] | None:
    """None where there is no such file, or half of one."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
