"""Run the jobs of a plan, and write the table of what they have left."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from plmctl.core.errors import ConfigError, UsageError
from plmctl.core.terminal import remark
from plmctl.jobs.display import show_jobs
from plmctl.jobs.job import Job
from plmctl.jobs.journal import JobJournal, hold_folder
from plmctl.jobs.runners import Processes, run_launched
from plmctl.study.early import reason_to_stop
from plmctl.study.plan import StudyPlan
from plmctl.study.results import Results
from plmctl.study.table import write_table

JOBS = "jobs"  # in the folder of a study: the folders of its jobs
EDITED = (
    "The study's file was edited while it ran;"
    " this is the table of the study as it was at the start. Run it again."
)


def make_journal(plan: StudyPlan, folder: Path) -> JobJournal:
    """How the jobs of a plan stand in the folder of its study."""

    def rule(job: Job, run: Path) -> str:
        if job.verb != "pretrain" or plan.study.stop is None:
            return ""
        return reason_to_stop(run, plan.study, plan.flops_per_token(job.name))

    return JobJournal(plan.jobs, folder / JOBS, rule=rule)


def run_study(
    plan: StudyPlan, folder: Path, settings: Mapping[str, Any], launcher: tuple[str, ...] = ()
) -> tuple[int, dict[str, Any]]:
    """Run what is not done yet, and write the table.

    Args:
        plan: of the study.
        folder: of the study; what is finished in it stays.
        settings: of the study, as composed.
        launcher: `hydra/launcher=<name>` and its settings, in the place of processes here.

    Returns:
        The exit code, and what table.json holds.
    """
    _check_launcher(launcher, settings["processes"])
    file = Path(settings["recipe"])
    before = _digest(file)
    for line in plan.study.left_out:
        remark(f"left out, and its metrics with it, until it is given: {line}")
    labels = {name: job.label for name, job in plan.jobs.items()}
    with hold_folder(folder, {**settings, "jobs": labels}, kind="study", command="plmctl ablate"):
        journal = make_journal(plan, folder)
        with show_jobs(journal, live=not launcher):
            code = (
                run_launched(journal, launcher)
                if launcher
                else Processes(journal, settings["processes"]).run()
            )
        notes = [EDITED] if _digest(file) != before else []
        record = write_table(
            plan.study, Results(plan, journal.states, journal.locate), folder, notes=notes
        )
    for note in record["notes"]:
        remark(note)
    return code, record


def _check_launcher(words: tuple[str, ...], processes: int) -> None:
    if words and not any(word.startswith("hydra/launcher=") for word in words):
        raise UsageError(f"{words[0]}: of which launcher?\n  fix: hydra/launcher=<name> before it")
    if words and processes != 1:
        allowed = "the launcher decides how many jobs run at a time"
        raise ConfigError("processes", processes, allowed, fix="leave it out")


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else ""
