"""The folder of a study as Python reads it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from plmctl.api.records import RowList
from plmctl.api.settings import check_path
from plmctl.core.errors import DataError
from plmctl.jobs.job import RUN
from plmctl.report.studies import StudyFolder, is_study


@dataclass(frozen=True)
class StudyRecord:
    """A study that was run: its table, and its jobs."""

    folder: Path
    title: str
    table: Mapping[str, Any]  # the content of table.json

    @cached_property
    def rows(self) -> RowList:
        """A row for each metric and arm: mean, difference from the baseline, interval, p, verdict;
        `values` are {seed: value}.
        """
        return RowList(dict(row) for row in self.table["rows"])

    @cached_property
    def values(self) -> RowList:
        """A row for each metric, arm and seed, with its `value`."""
        return RowList(
            {"metric": row["metric"], "arm": row["arm"], "seed": int(seed), "value": value}
            for row in self.table["rows"]
            for seed, value in row["values"].items()
        )

    @cached_property
    def costs(self) -> RowList:
        """A row for each arm: parameters, tokens, FLOPs, seconds; means over seeds."""
        return RowList(dict(row) for row in self.table["costs"])

    @cached_property
    def jobs(self) -> RowList:
        """A row for each job: what it does, its state, and the folder of its run."""
        jobs = StudyFolder.read(self.folder).jobs
        return RowList(
            {"job": job.label, "verb": job.verb, "state": job.state, "run": str(job.folder / RUN)}
            for job in jobs
        )


def read_study(path: str | os.PathLike[str]) -> StudyRecord:
    """The study in a folder, whose table has been written; DataError if the folder has none."""
    check_path("path", path)
    folder = Path(path).expanduser()
    if not is_study(folder):
        fix = "the folder that out= of plmctl ablate names, by default studies/<name>"
        raise DataError("there is no study here (study.json)", file=folder, fix=fix)
    study = StudyFolder.read(folder)
    if study.table is None:
        fix = "start it again: plmctl ablate goes on where it was, and writes the table at its end"
        raise DataError("this study has no table yet", file=folder, fix=fix)
    return StudyRecord(folder, study.title, study.table)
