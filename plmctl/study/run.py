"""`plmctl ablate`: run a study's arms over its seeds, and write the table of their differences."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from plmctl.config.build import plain
from plmctl.config.launcher import read_launcher
from plmctl.config.published import find_study_folder
from plmctl.config.recipes import studies
from plmctl.config.schema import Ablate
from plmctl.core.terminal import counted, remark, tell
from plmctl.jobs.cluster import Cluster
from plmctl.jobs.job import Job, remark_next, write_line
from plmctl.jobs.journal import JobJournal, hold_folder
from plmctl.jobs.runners import check_launcher, run_jobs
from plmctl.storage.paths import SUBMITTED, refuse_file_name
from plmctl.study.before import list_replaced
from plmctl.study.early import reason_to_stop
from plmctl.study.held_out import refuse_little
from plmctl.study.looks import open_looks
from plmctl.study.parse import parse
from plmctl.study.plan import StudyPlan, plan
from plmctl.study.results import Results, list_warnings
from plmctl.study.rounds import Rounds
from plmctl.study.show import JOBS, describe_plan, show_plan, show_table
from plmctl.study.table import LiveTable, write_table
from plmctl.study.tokenizers import try_tokenizers
from plmctl.study.unlike import list_unlike_arms

EDITED = (
    "The study's file was edited while it ran;"
    " this is the table of the study as it was at the start. Run it again."
)
GOING = "The study is running: the table counts the jobs that are done so far."
OTHERS = (
    "{} in {} had other settings, or another plmctl made them: they stay and do not count;"
    " all jobs of this study run anew"
)


def ablate(settings: Ablate) -> int:
    """Run what is not done yet of a study, and write its table; with --dry-run show its plan.

    Returns:
        0, or 1 where a cell failed, or 130, 143 or 129 after a signal.
    """
    try:
        return _ablate(settings)
    except KeyboardInterrupt:  # before the first job, or after the last one
        if settings.provenance.dry_run:
            raise
        _remark_next("stopped", settings)
        return 130


def _ablate(settings: Ablate) -> int:
    given, folder = settings.provenance, find_study_folder(settings)
    refuse_file_name(folder)
    planned = plan(parse(settings), given, settings.processes)
    refuse_little(planned)
    for line in list_replaced(_file_of(settings), given):
        remark(line)
    for recipe, decision in planned.decisions.items():
        remark(f"{recipe}: {decision}")
    journal = make_journal(planned, folder)
    if (others := journal.others) and not journal.done:
        remark(OTHERS.format(counted(len(others), "finished job"), folder / JOBS))
    if given.dry_run:
        for question in try_tokenizers(planned, given):
            remark(f"not checked: {question}")
        looks = open_looks(planned, folder, journal.states)
        if given.json:
            tell(json.dumps(describe_plan(planned, journal.states, folder, looks)))
        else:
            show_plan(planned, journal.states, folder, looks)
            if ours := read_launcher(given.launcher):
                tell(Cluster(ours, folder / SUBMITTED).describe())
        return 0
    check_launcher(given.launcher, settings.processes, name="processes", kind="study")
    code, record = _run(planned, folder, settings)
    tell(json.dumps(record)) if given.json else show_table(record)
    remark(f"table: {folder / 'table.md'}")
    if code:
        _remark_next("stopped" if code > 1 else "some jobs failed", settings)
    return code


def _file_of(settings: Ablate) -> Path:
    return Path(str(settings.recipe))


def _remark_next(what: str, settings: Ablate) -> None:
    """Say that a study has ended before its time, and the command that goes on with it."""
    given = settings.provenance
    remark_next(what, *_list_words(settings), given=given)


def _list_words(settings: Ablate) -> list[str]:
    """The words of the command that runs what is open."""
    given = settings.provenance
    name = _spell_study(_file_of(settings), given.config_dirs)
    return ["ablate", name, *given.overrides, *given.launcher]


def _spell_again(settings: Ablate) -> str:
    given = settings.provenance
    dirs, plugins = given.config_dirs, given.plugins
    return write_line(*_list_words(settings), config_dirs=dirs, plugins=plugins)


def make_journal(plan: StudyPlan, folder: Path) -> JobJournal:
    """How the jobs of a plan stand in the folder of its study."""

    def rule(job: Job, run: Path) -> str:
        cell = next((each for each in plan.cells if each.pretrain == job.name), None)
        if cell is None or plan.study.stop is None:
            return ""
        places = (folder / JOBS / name for name in plan.list_tokenizers(cell))
        return reason_to_stop(run, plan.study, plan.count(cell.arm, places)[0])

    return JobJournal(plan.jobs, folder / JOBS, rule=rule)


def _run(plan: StudyPlan, folder: Path, settings: Ablate) -> tuple[int, dict[str, Any]]:
    """Run what is not done yet, and write the table: the exit code, and what table.json holds."""
    file, launcher = _file_of(settings), settings.provenance.launcher
    before = _hash(file)
    for line in plan.study.left_out:
        remark(f"left out, and its metrics with it, until it is given: {line}")
    for line in list_unlike_arms(plan.study, plan.arms):
        remark(line)
    labels = {name: job.label for name, job in plan.jobs.items()}
    looks = open_looks(plan, folder, make_journal(plan, folder).states)
    record = {**plain(settings), "jobs": labels}
    with hold_folder(folder, record, kind="study", command="plmctl ablate"):
        whole, code = make_journal(plan, folder), 0
        journal = JobJournal({}, folder / JOBS, rule=whole.rule)
        rounds = Rounds(plan, whole.states, journal, looks)

        def write(notes: Sequence[str]) -> dict[str, Any]:
            results = Results(rounds.part, journal.states, journal.locate)
            warnings = list_warnings(rounds.part, journal.events)
            told = {"notes": notes, "warnings": warnings}
            return write_table(
                plan.study,
                results,
                folder,
                **told,
                looks=looks,
                seconds=rounds.measure_time(),
                again=_spell_again(settings),
            )

        journal.ended_one = live = LiveTable(lambda: write([GOING]))
        for _ in rounds:
            live()
            code = run_jobs(journal, settings.processes, launcher)
            if code > 1:
                break
        notes = [
            *([EDITED] if _hash(file) != before else []),
            *([rounds.end] if rounds.end else []),
        ]
        record = write(notes)
    for note in record["notes"]:
        remark(note)
    return code, record


def _spell_study(file: Path, config_dirs: Sequence[str]) -> str:
    """The file of a study as one types it: by its name, or as ./mine.yaml."""
    named = studies(config_dirs).get(file.stem) == file
    return file.stem if named else str(file) if file.is_absolute() else f"./{file}"


def _hash(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else ""
