"""The individuals of a search as jobs, and the log of its steps.

FOLDER/search.jsonl   each step as it was proposed, and each result
FOLDER/jobs/<name>/   an individual with one seed: 0007, or 0007-1 of several seeds
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from plmctl.core.errors import DataError, UsageError
from plmctl.jobs.job import Job
from plmctl.jobs.journal import JobJournal, State
from plmctl.jobs.sweep_job import read_last_metrics
from plmctl.jobs.work import RECORD
from plmctl.search.course import Course
from plmctl.search.goals import Goal, read_fitness
from plmctl.search.strategy import Fitness, SearchStep, StepResult
from plmctl.storage.gate import admit
from plmctl.storage.job_events import measure_time
from plmctl.storage.lines import append_line, read_lines
from plmctl.storage.reading import parse_json
from plmctl.training.log import METRICS, read_metrics

FILE, JOBS = "search.jsonl", "jobs"
FAILURES = 5  # trainings that fail before any succeeds, after which a search is given up


class StepLog:
    """The log of a search: what was proposed, and what came of it."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / FILE
        self.proposed: dict[int, dict[str, Any]] = {}
        self.results: dict[int, StepResult] = {}
        for line in read_lines(self.file)[0]:
            if "point" in line:
                self.proposed[int(line["number"])] = line
            else:
                number = int(line.pop("step"))
                fitness = line.pop("fitness")
                line["each"] = tuple(map(_read_numbers, line.get("each", ())))
                self.results[number] = StepResult(_read_numbers(fitness), **line)

    @property
    def lost(self) -> bool:
        """Whether no training has succeeded, and none is left that might: nothing to go on with."""
        kinds = [each.kind for each in self.results.values()]
        failed = kinds.count("failed")
        ended = failed >= FAILURES or self.proposed.keys() == self.results.keys()
        return failed > 0 and ended and "trained" not in kinds

    def forget(self) -> None:
        """Remove the log and its jobs."""
        admit(self.file).unlink()
        shutil.rmtree(admit(self.file.parent / JOBS), ignore_errors=True)
        self.proposed, self.results = {}, {}

    def propose(self, step: SearchStep) -> None:
        """Write a step, unless an earlier start has written it.

        Raises:
            UsageError: The earlier start proposed something else.
        """
        line = {**asdict(step), "point": dict(step.point)}
        known = self.proposed.get(step.number)
        if known is None:
            self.proposed[step.number] = line
            append_line(self.file, line, durable=True)
        elif known != line:
            raise UsageError(
                f"{self.file}: step {step.number} was {known}, and is now {line}: another version"
                " of plmctl or of a plug-in began this search\n  fix: out=<another folder>"
            )

    def conclude(self, number: int, result: StepResult) -> None:
        """Write the result of a step, unless it is written."""
        if number in self.results:
            return
        self.results[number] = result
        line = asdict(result)
        line["fitness"] = _spell_numbers(result.fitness)
        line["each"] = [*map(_spell_numbers, result.each)]
        append_line(self.file, {"step": number, **line}, durable=True)


def _read_numbers(line: Sequence[float | None]) -> Fitness:
    return tuple(-math.inf if each is None else each for each in line)


def _spell_numbers(fitness: Fitness) -> list[float | None]:
    """JSON has no infinity."""
    return [each if math.isfinite(each) else None for each in fitness]


@dataclass(frozen=True)
class Rerun:
    """An individual that is trained again in full on a fresh seed."""

    individual: int
    seed: int

    @property
    def name(self) -> str:
        """The name of its job."""
        return f"again-{self.individual:04d}-{self.seed}"


class SearchJobs(JobJournal):
    """The jobs of a search, which grow with its course.

    Args:
        folder: The folder of the search.
        course: The course.
        log: Its log.
        make: Makes the job of an individual: (its name, a step, a seed) -> a job.
        goals: The goals.
        seeds: The seeds of each individual.
        choose: Chooses what is trained again, once the course is over.
        costs: {individual: its costs}, filled by whoever settles the steps of the course.
        hours: The hours that all starts together may take; None: no limit.
    """

    def __init__(
        self,
        folder: Path,
        course: Course,
        log: StepLog,
        *,
        make: Callable[[str, SearchStep, int], Job],
        goals: Sequence[Goal],
        seeds: Sequence[int],
        choose: Callable[[], Sequence[Rerun]],
        costs: Mapping[int, Mapping[str, float]],
        hours: float | None = None,
    ) -> None:
        super().__init__({}, folder / JOBS)
        self.course, self.log, self.make, self.hours = course, log, make, hours
        self.goals, self.seeds, self.choose = goals, tuple(seeds), choose
        self.costs = costs
        self.reruns: Sequence[Rerun] | None = None
        self._waiting: dict[int, tuple[SearchStep, list[str]]] = {}
        self._news = True  # whether the course may go on
        course.results |= log.results

    def ready(self) -> Iterator[Job]:
        """Yield the jobs that can begin; the newest results may add some."""
        begun: list[Job] = []
        while True:
            self._follow()
            fresh = [job for job in super().ready() if not any(job is other for other in begun)]
            if not fresh:
                return
            begun += fresh
            yield from fresh

    def _follow(self) -> None:
        """Take the results of ended jobs, and add the jobs that follow from them."""
        self._collect()
        if self._news:
            self._news = False
            self._advance()
        if self.course.over and self.reruns is None:
            self.reruns = self.choose()
            for rerun in self.reruns:
                step = self.course.individuals[rerun.individual].steps[-1]
                whole = replace(step, updates=self.course.measure(step.point))
                self.add({rerun.name: self.make(rerun.name, whole, rerun.seed)})

    def find_state(self, job: Job) -> State:
        """As for all jobs; one whose run was shorter is open."""
        state = super().find_state(job)
        file = self.locate(job.name) / RECORD
        if state.kind != "done" or not file.is_file():
            return state
        was = parse_json(file.read_text(encoding="utf-8"))["plan"]
        same = was["train"]["pause_at"] == job.config["train"]["pause_at"]
        return state if same else State("open")

    def extend(self, job: Job) -> None:
        """Take a job in, or go on with the job of this name, which is longer now."""
        self.states.pop(job.name, None)
        self.add({job.name: job})

    def measure_seconds(self) -> float:
        """The seconds of wall-clock time that the jobs have taken, over all starts."""
        return measure_time(self.folder, self.jobs)

    def _advance(self) -> None:
        if self.hours is not None and not self.course.end:
            spent = measure_time(self.folder, {*self.events.last})
            if spent >= 3600 * self.hours:
                self.course.end = f"The budget of {self.hours:g} hours is spent."
        for step in self.course.advance():
            self.log.propose(step)
            result = self.course.results.get(step.number)
            if result is not None:
                self.log.conclude(step.number, result)
                continue
            jobs = [self.make(self.name(step.individual, seed), step, seed) for seed in self.seeds]
            for job in jobs:
                self.extend(job)
            self._waiting[step.number] = step, [job.name for job in jobs]
            self._collect()

    def name(self, individual: int, seed: int) -> str:
        """The name of the job of an individual with a seed."""
        return f"{individual:04d}" + (f"-{seed}" if len(self.seeds) > 1 else "")

    def _collect(self) -> None:
        for number, (step, names) in list(self._waiting.items()):
            states = [self.states[name] for name in names]
            if any(state.kind == "open" for state in states):
                continue
            del self._waiting[number]
            result = self._read(step, names)
            self.log.conclude(number, result)
            self.course.take(number, result)
            self._news = True
            self._refuse_failures()

    def _read(self, step: SearchStep, names: Sequence[str]) -> StepResult:
        """The result of a step: the mean over its seeds."""
        costs = dict(self.costs.get(step.individual, {}))
        seconds = sum(self.events.of(name).seconds for name in names)
        seconds -= sum(each.seconds for each in self.course.individuals[step.individual].results)
        updates = self.course.plan_updates(step)
        failed = [self.states[name] for name in names if self.states[name].kind != "done"]
        worst = (-math.inf,) * len(self.goals)
        if failed:
            updates = self._count_made(step, names)
            return StepResult(worst, updates, "failed", failed[0].why, seconds, costs)
        try:
            each = [self.read_fitness(name, costs) for name in names]
        except DataError as error:
            return StepResult(worst, updates, "failed", str(error), seconds, costs)
        fitness = tuple(float(np.mean(column)) for column in zip(*each, strict=True))
        own = tuple(each) if len(each) > 1 else ()
        return StepResult(fitness, updates, "trained", "", seconds, costs, own)

    def _count_made(self, step: SearchStep, names: Sequence[str]) -> int:
        """The updates of a step that failed: the mean over its seeds."""
        before = step.updates - self.course.plan_updates(step)
        made = sum(self.count_updates(name, step.updates) for name in names)
        return max(0, math.ceil(made / len(names)) - before)

    def count_updates(self, name: str, planned: int) -> int:
        """The updates of a job: all planned ones once it is done, else those in its log."""
        log = Path(self.runs[name]) / METRICS
        if self.states[name].kind == "done" or not log.is_file():
            return planned if self.states[name].kind == "done" else 0
        return min(planned, max((record["step"] for record in read_metrics(log)), default=0))

    def read_fitness(self, name: str, costs: Mapping[str, float]) -> tuple[float, ...]:
        """The fitness of one job."""
        metrics = read_last_metrics(Path(self.runs[name]))
        scores = {key.removeprefix("valid/"): value for key, value in metrics.items()}
        scores |= {key.removeprefix("sample/"): value for key, value in scores.items()}
        return read_fitness(self.goals, scores, costs)

    def _refuse_failures(self) -> None:
        kinds = [each.kind for _, each in sorted(self.course.results.items())]
        trained = [kind for kind in kinds if kind in ("trained", "failed")]
        if len(trained) >= FAILURES and set(trained) == {"failed"}:
            last = [each.why for each in self.course.results.values() if each.kind == "failed"][-1]
            raise UsageError(
                f"the first {FAILURES} individuals failed; the last one: {last}\n  fix: mend the"
                f" cause (logs are in {self.folder}), and start again: the search begins anew"
            )
