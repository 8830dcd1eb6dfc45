"""`-m/--multirun`: several jobs of one command, composed and checked before the first one begins;
each has a folder, and a table is the end.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from plmctl.config.compose import Composition, attempt_jobs, composed
from plmctl.config.composer import (
    HydraComposer,
    LauncherJob,
    current_job,
    open_composer,
    store_recipe,
)
from plmctl.config.launcher import Launcher, read_launcher
from plmctl.config.overrides import OverrideWord
from plmctl.config.quoting import quote
from plmctl.config.recipes import option_name
from plmctl.config.spec import OF_HYDRA, Provenance, key_of
from plmctl.core.errors import ConfigError, PlmctlError, UsageError, collect, list_some, raise_all
from plmctl.core.spelling import quote_value, spell_line
from plmctl.core.terminal import DETAIL, divert, hears, print_columns, remark, screen, tell
from plmctl.jobs.former_sweeper import refuse_former
from plmctl.jobs.job import remark_next
from plmctl.jobs.sweep_job import (
    SweepJob,
    find_folder,
    forget_plans,
    read_last_metrics,
    score,
    write_end,
)
from plmctl.jobs.work import LauncherTask, Outcome, attempt
from plmctl.report import sweep_tasks, sweeps
from plmctl.report.checkpoint_scores import find_checkpoint_scores
from plmctl.report.folds import conclude_folds
from plmctl.report.page import Block, Paragraph, TableBlock
from plmctl.storage.gate import admit, open_file, own
from plmctl.storage.paths import LOG, SUBMITTED, fresh

SWEEP_DIR, MULTIRUN, CHECKPOINT = "hydra.sweep.dir", "multirun", "checkpoint"
_NUMBER = re.compile(r"(\d+)")
# a run directory starts empty, and keeps its own log
QUIET = {"hydra.output_subdir": "null", "hydra/job_logging": "none"}
FEW = 8  # numbers of jobs in a message


def sweep(given: Provenance) -> int:
    """Run every job of a sweep.

    Returns:
        0 when all succeeded, 1 when one failed, 130, 143 or 129 when a signal ended it.

    Raises:
        UsageError: All that is wrong with any job; none has begun.
    """
    refuse_former(given)
    ours, given = read_launcher(given.launcher), replace(given, launcher=())
    if ours is not None and ours.nodes > 1:
        allowed = "1: each job of a sweep has one machine"
        raise ConfigError("nodes", ours.nodes, allowed, fix="nodes=1, or leave it out")
    words = [_list_matches(_share_folder(word)) for word in given.overrides]
    given = replace(given, overrides=_give_folder(words))
    compositions = attempt_jobs(given)
    if compositions is None:
        return _conclude(given, *_search(given))
    jobs = [job for job in compositions if isinstance(job, Composition)]
    problems = [job.errors if isinstance(job, Composition) else job for job in compositions]
    raise_all(_join(problems))
    of_hydra = [word for word in jobs[0].words if not word.sample]
    with _open_sweep(given, jobs[0].words, jobs[0].spec.provenance.recipe or "") as (hydra, words):
        place, varied_by_hydra = hydra.sweep_folder(words)
    launcher = [word.text for word in of_hydra if word.key != SWEEP_DIR]
    if varied_by_hydra or not all(word.startswith(OF_HYDRA) for word in launcher):
        return _conclude(given, *_search(given))
    folder = Path(place)
    placed = _place(jobs, folder.resolve())
    forget_plans(folder.resolve())
    if ours is not None:
        code = _submit(given, placed, folder, ours)
    else:
        code = _launch(given, placed, folder, launcher) if launcher else _run_here(placed)
    return _conclude(given, folder, code)


def _join(problems: Sequence[Sequence[PlmctlError]]) -> Iterator[PlmctlError]:
    """Yield every problem once, with the numbers of its jobs where it is not one of all jobs."""
    jobs: dict[str, list[int]] = {}
    for number, errors in enumerate(problems):
        for error in dict.fromkeys(map(str, errors)):
            jobs.setdefault(error, []).append(number)
    by_text = {str(error): error for errors in problems for error in errors}
    for text, numbers in jobs.items():
        if len(numbers) == len(problems):
            yield by_text[text]
            continue
        yield UsageError(f"job{'s' * (len(numbers) > 1)} {list_some(numbers, FEW)}: {text}")


def _place(compositions: Sequence[Composition], folder: Path) -> list[SweepJob]:
    """The jobs with their folders in the folder of the sweep; raises the mistakes of any of them,
    or of an earlier run in its folder.
    """
    several = len({job.spec.provenance.recipe for job in compositions}) > 1
    jobs: list[SweepJob] = []
    problems: list[list[PlmctlError]] = []
    for number, composed_job in enumerate(compositions):
        words = [word for word in composed_job.words if word.sample]
        varied = {word.key for word in words if word.swept} | ({"recipe"} if several else set())
        job = _make_job(composed_job, words, varied, folder, folder / str(number), number)
        job = replace(job, folder=find_folder(job, {other.folder for other in jobs}))
        problems.append([])
        with collect(problems[-1]):
            jobs.append(job.place())
            jobs[-1].check()
    raise_all(_join(problems))
    return jobs


def _make_job(
    composition: Composition,
    words: Sequence[OverrideWord],
    varied: Collection[str],
    sweep: Path,
    folder: Path,
    number: int | None,
) -> SweepJob:
    """The job with these words, of which those with the keys in `varied` differ between jobs."""
    texts = tuple(word.text for word in words)
    spec = composition.spec
    recipe = spec.provenance.recipe
    every = (*texts, *([f"recipe={option_name(recipe)}"] if recipe else []))
    different = tuple(text for text in every if key_of(text) in varied)
    return SweepJob(sweep, number, folder, every, different, spec.asked(overrides=texts))


def _run_here(jobs: Sequence[SweepJob]) -> int:
    """Run one job after the other in this process; the code of the signal that ended one, or 0."""
    try:
        for job in jobs:
            state = "finished before: " if job.is_finished() else ""
            state = state or ("goes on: " if job.spec.provenance.resume else "")
            remark(f"job {job.number} of {len(jobs)}: {state}{job.label}")
            outcome = _do_aside(job)
            if outcome.stopped:
                return outcome.code
            if job.makes_runs and job.record:
                log = job.folder / LOG
                there = f"; log: {os.path.relpath(log)}" if log.is_file() else ""
                remark(f"  {sweeps.describe_job(job.record)}{there}")
    except KeyboardInterrupt:
        return 130
    return 0


def _do_aside(job: SweepJob) -> Outcome:
    """Do a job, whose log takes what it prints; a terminal shows warnings, --verbose everything."""
    if job.is_finished() or not job.makes_runs or hears(DETAIL):
        return job.do()
    own(job.sweep)
    admit(job.folder).mkdir(parents=True, exist_ok=True)
    with open_file(job.folder / LOG, "a") as log, divert(log):
        return job.do()


def _launch(
    given: Provenance, jobs: Sequence[SweepJob], folder: Path, launcher: Sequence[str]
) -> int:
    """Give all jobs to a Hydra launcher, which composes nothing of them; 130 after a signal."""
    numbers = ",".join(str(job.number) for job in jobs)
    words = [f"+number={numbers}", *(f"{key}={value}" for key, value in QUIET.items())]
    words += [quote(f"{SWEEP_DIR}={folder}"), *launcher]
    words += ["hydra/hydra_logging=none"] if given.json else []
    with open_composer(given.verb, given.config_dirs, given.plugins) as composer:
        task = LauncherTask(_LaunchedJobs(tuple(jobs)))
        return 130 if composer.multirun(task, words, plain=True) else 0


def _submit(given: Provenance, jobs: Sequence[SweepJob], folder: Path, launcher: Launcher) -> int:
    """Give all jobs that are not done to a cluster; the code of a signal, or 0."""
    from plmctl.jobs.cluster import LOST, Cluster
    from plmctl.jobs.on_cluster import ClusterJob

    cluster = Cluster(launcher, folder.absolute() / SUBMITTED, name=given.command)
    if given.dry_run:
        code = _run_here(jobs)
        tell(cluster.describe())
        return code
    open_jobs = [job for job in jobs if not job.done]
    for job in jobs:
        if job.done:
            job.do()

    def conclude(index: int, outcome: Outcome) -> None:
        job = open_jobs[index]
        remark(f"job {job.number} of {len(jobs)}: {outcome.event}: {job.label}")
        if outcome.code == LOST:
            job.write_end(outcome, read_last_metrics(job.run))

    here = os.getcwd()
    return cluster.run([ClusterJob(_SubmittedJob(job), here) for job in open_jobs], conclude)


@dataclass(frozen=True)
class _SubmittedJob:
    """The work of a job on a cluster: it goes on with the run in its folder."""

    job: SweepJob

    def __call__(self) -> Outcome:
        placed = list[SweepJob]()
        outcome = attempt(lambda: placed.append(self.job.place()))
        return placed[0].do() if placed else outcome


@dataclass(frozen=True)
class _LaunchedJobs:
    """The function that a launcher calls with the number of a job."""

    jobs: tuple[SweepJob, ...]

    def __call__(self, settings: dict[str, Any]) -> Outcome:
        return self.jobs[settings["number"]].do()


def _search(given: Provenance) -> tuple[Path, int]:
    """Have a sweeper of Hydra choose the jobs by the scores of earlier ones; the folder, and 130
    after a signal.
    """
    words = composed(given, sweep=True).words
    with _open_sweep(given, words, given.recipe or "") as (composer, overrides):
        folder, swept = composer.sweep_folder(overrides)
        swept |= {word.key for word in words if word.swept}
        swept |= {"recipe"} if "," in (given.recipe or "") else set()
        overrides = [text for text in overrides if not text.startswith(f"{SWEEP_DIR}=")]
        overrides += [quote(f"{SWEEP_DIR}={folder}")]
        forget_plans(Path(folder).resolve())
        task = LauncherTask(_FoundJob(given, frozenset(swept), Path(folder).resolve()))
        return Path(folder), 130 if composer.multirun(task, overrides) else 0


@dataclass(frozen=True)
class _FoundJob:
    """The function that a launcher calls with the settings that a search has found."""

    given: Provenance
    varied: frozenset[str]
    sweep: Path

    def __call__(self, settings: dict[str, Any]) -> Outcome:
        own, jobs = current_job(), list[SweepJob]()
        composing = attempt(lambda: jobs.append(self._compose(own)))
        if not composing.code:
            placing = attempt(lambda: jobs.append(jobs[0].place()))
            if not placing.code:
                return jobs[1].do()
            composing = placing
        write_end(self.sweep, own.folder, composing, {"job": own.number, "overrides": own.words})
        return replace(composing, result=score({}))

    def _compose(self, own: LauncherJob) -> SweepJob:
        names = {option_name(name): name for name in (self.given.recipe or "").split(",") if name}
        words = [
            OverrideWord(text, key_of(text), text, group=key_of(text) in own.choices)
            for text in own.words
            if not text.startswith("recipe=")
        ]
        given = replace(self.given, recipe=names.get(str(own.choices.get("recipe"))))
        given = replace(given, overrides=tuple(word.text for word in words))
        job = composed(given)
        return _make_job(job, words, self.varied, self.sweep, own.folder, own.number)


@contextlib.contextmanager
def _open_sweep(
    given: Provenance, words: Sequence[OverrideWord], recipes: str
) -> Iterator[tuple[HydraComposer, list[str]]]:
    """Hydra, and the words of a sweep in Hydra's spelling."""
    keys = [word.key for word in words]
    overrides = [word.text for word in words]
    overrides += [f"{key}={value}" for key, value in QUIET.items() if key not in keys]
    overrides += ["hydra/hydra_logging=none"] if given.json else []
    with open_composer(given.verb, given.config_dirs, given.plugins) as composer:
        options = [store_recipe(name, given.config_dirs) for name in recipes.split(",") if name]
        yield composer, [*overrides, *([f"recipe={','.join(options)}"] if options else [])]


def _conclude(given: Provenance, folder: Path, code: int) -> int:
    """Show and write the table, and say how to go on where something is left; the exit code."""
    records = sweeps.read_records(folder)
    tell(json.dumps(records)) if given.json else _print_table(records, folder)
    if records:
        tasks = sweep_tasks.read_tasks(records)
        ends = conclude_folds(records, folder, given.plugins) + sweeps.describe_end(records)
        ends += sweep_tasks.list_notes(tasks) + sweep_tasks.describe_averages(tasks)
        ends += sweeps.describe_plan(records)
        blocks: list[Block] = [TableBlock(*sweep_tasks.make_table(tasks))] if tasks else []
        blocks += [Paragraph(end) for end in ends]
        remark(f"table: {sweeps.write(records, folder, blocks)}")
        sweep_tasks.write(tasks, folder)
        for end in ends:
            remark(end)
        if find_checkpoint_scores(records):
            remark(f"learning curves: {spell_line('report', folder)}")
    what = "stopped" if code else "some jobs failed"
    code = code or int(any(record["code"] for record in records))
    if code:
        typed = [word for word in given.overrides if key_of(word) != SWEEP_DIR]
        recipe = [given.recipe] if given.recipe else []
        dry = ["--dry-run"] if given.dry_run else []  # trains nothing, as it did
        line = (given.command, *recipe, "-m", *typed, f"{SWEEP_DIR}={folder}", *dry)
        remark_next(what, *line, given=given)
    return code


def _share_folder(word: str) -> str:
    """A `run.dir` that is the same for every job holds their folders."""
    shared = key_of(word) == "run.dir" and "${" not in word
    return quote(word).replace("run.dir=", f"{SWEEP_DIR}=", 1) if shared else word


def _list_matches(word: str) -> str:
    """`checkpoint=a/words-*,b/words-*` as a list of all that each pattern matches, in the order of
    their numbers.
    """
    text = word.removeprefix(f"{CHECKPOINT}=")
    if text == word:
        return word
    # a comma may be part of a name
    patterns = [text] if os.path.exists(text) or glob.glob(text) else text.split(",")
    found = [sorted(glob.glob(pattern), key=_by_number) for pattern in patterns]
    if not (glob.has_magic(text) and all(found)) or os.path.exists(text):
        return word
    return f"{CHECKPOINT}={','.join(quote_value(path) for paths in found for path in paths)}"


def _by_number(path: str) -> list[tuple[int, str]]:
    """A key of order by which words-9 is before words-10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in _NUMBER.split(path)]


def _give_folder(words: Iterable[str]) -> tuple[str, ...]:
    """The words with a folder for the sweep: Hydra's own is named by the second, which another
    sweep may have begun in.
    """
    given = tuple(words)
    named = any(key_of(word) == SWEEP_DIR for word in given)
    return given if named else (*given, f"{SWEEP_DIR}={fresh(Path(MULTIRUN))}")


def _print_table(records: list[dict[str, Any]], folder: Path) -> None:
    from rich.table import Column, Table

    head, rows = sweeps.make_table(records)
    widest = max(len(word) for row in rows for word in row[1].split() or [""])
    columns = [
        Column(name, overflow="fold", min_width=min(widest, 36)) if name == "varied" else name
        for name in head
    ]
    shown = Table(*columns, title=f"{len(records)} jobs in {folder}", title_justify="left")
    for row in rows:
        shown.add_row(*row)
    console = screen()
    console.print(shown)
    for record in records:
        if record.get("error"):
            console.print(f"job {record['job']}: {record['error']}")
    if tasks := sweep_tasks.read_tasks(records):
        print_columns("scores of tasks on dev", *sweep_tasks.make_table(tasks))
