"""The outcome of a search as data: its individuals, the best on fresh seeds, and the costs."""

from __future__ import annotations

import hashlib
import json
import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from plmctl.search.course import Course
from plmctl.search.goals import Goal
from plmctl.search.importance import Importance, measure_importance
from plmctl.search.journal import Rerun, SearchJobs
from plmctl.search.space import Space
from plmctl.search.strategy import Fitness, Individual, dominates


@dataclass(frozen=True)
class Spread:
    """Several values of one goal.

    Args:
        sd: Their standard deviation; None of one.
    """

    mean: float
    sd: float | None
    median: float
    best: float

    @classmethod
    def of(cls, goal: Goal, fitnesses: Sequence[float]) -> Spread | None:
        """The spread of fitnesses, in the units of the goal; None of none."""
        if not fitnesses:
            return None
        values = [goal.to_value(each) for each in fitnesses]
        deviation = statistics.stdev(values) if len(values) > 1 else None
        best = goal.to_value(max(fitnesses))
        return cls(statistics.fmean(values), deviation, statistics.median(values), best)


@dataclass(frozen=True)
class Again:
    """An individual that was trained again on fresh seeds.

    Args:
        whole: Whether the search trained it as long as the fresh seeds.
    """

    individual: Individual
    found: Fitness
    values: Sequence[Fitness]
    whole: bool = True

    def mean(self, goal: int = 0) -> float:
        """The mean over the fresh seeds."""
        return statistics.fmean(each[goal] for each in self.values)

    def regret(self, goal: int = 0) -> float:
        """How much better it looked in the search: found - mean of the fresh seeds; nan where the
        search trained it for fewer updates.
        """
        return self.found[goal] - self.mean(goal) if self.whole else math.nan


@dataclass(frozen=True)
class SearchOutcome:
    """A search so far.

    Args:
        course: The course, with all individuals and results.
        again: The best individuals, trained again.
        levels: (updates, fitness) of each hurdle.
        importance: The importance of settings; None where the space has no independent ones.
        seconds: The wall-clock time of all starts.
        spent: Updates of all trainings, those of fresh seeds apart.
        spent_again: Updates on fresh seeds.
        lost: {individual: fresh seeds whose training failed, or has no finite fitness}.
        lines: {individual that was trained again: the command line that trains it}.
    """

    title: str
    goals: tuple[Goal, ...]
    space: Space
    course: Course
    again: Sequence[Again]
    levels: Sequence[tuple[int, float]]
    importance: Importance | None
    seconds: float
    spent: int
    spent_again: int
    lost: Mapping[int, int]
    lines: Mapping[int, str]

    @classmethod
    def of(cls, plan: Any, course: Course, jobs: SearchJobs) -> SearchOutcome:
        """The outcome of a course whose jobs have ended, or as far as they have."""
        again = _read_again(course, jobs)
        results = course.results.values()
        title = plan.settings["title"] or plan.folder.name
        whole = [each for each in course.individuals if each.fit and each.updates]
        equal = _leave_out_parts(course, whole)
        importance = None
        if plan.space.dimensions:
            points = [(each.point, (each.fitness or (math.nan,))[0]) for each in equal]
            importance = measure_importance(plan.space.dimensions, points, plan.settings["seed"])
        return cls(
            title,
            plan.goals,
            plan.space,
            course,
            again,
            plan.strategy.levels(course.individuals),
            importance,
            jobs.measure_seconds(),
            sum(each.updates for each in results) * len(plan.settings["seeds"]),
            _count_again(course, jobs),
            _count_lost(jobs),
            {
                each.individual.number: plan.maker.spell(
                    plan.space.overrides(each.individual.point)
                )
                for each in again
            },
        )

    @property
    def ranked(self) -> list[Individual]:
        """All individuals with a fitness, the best first."""
        return find_best(self.course, len(self.course.individuals), whole=False)

    @property
    def list_hash(self) -> str:
        """The sha256 of the list of individuals with their results, equal for equal searches."""
        lines = [
            [each.number, each.parent, dict(each.point)]
            + [
                [s.updates, *map(repr, self.course.results[s.number].fitness)]
                for s in each.steps
                if s.number in self.course.results
            ]
            for each in self.course.individuals
        ]
        return hashlib.sha256(json.dumps(lines, sort_keys=True).encode()).hexdigest()

    def brief(self, each: Individual) -> str:
        """An individual in few words."""
        parent = None if each.parent is None else self.course.individuals[each.parent].point
        return self.space.brief(each.point, parent)

    @property
    def equal(self) -> list[Individual]:
        """The individuals with a fitness whose trainings are equally long, copies left out."""
        return find_best(self.course, len(self.course.individuals))

    def spread(self, each: Individual) -> Spread | None:
        """The first goal of an individual over its seeds; None of one seed."""
        by_seed = each.results[-1].each if each.results else ()
        return Spread.of(self.goals[0], [one[0] for one in by_seed])

    @property
    def spread_of_all(self) -> Spread | None:
        """The first goal over the individuals with equally long trainings."""
        return Spread.of(self.goals[0], [each.fitness[0] for each in self.equal if each.fitness])

    def values(self, fitness: Fitness) -> list[float]:
        """A fitness in the units of the goals."""
        return [goal.to_value(each) for goal, each in zip(self.goals, fitness, strict=True)]

    def record(self) -> dict[str, Any]:
        """The outcome as plain JSON."""
        return {
            "title": self.title,
            "end": self.course.end,
            "sha256": self.list_hash,
            "goals": [{"name": goal.name, "lower": goal.lower} for goal in self.goals],
            "individuals": [self._record(each) for each in self.course.individuals],
            "all": _as_record(self.spread_of_all),
            "best": [self._record_again(each) for each in self.again],
            "importance": self.importance.record() if self.importance else None,
            "hurdles": [list(level) for level in self.levels],
            "updates": self.spent,
            "updates_again": self.spent_again,
            "failed_again": {str(number): count for number, count in self.lost.items()},
            "seconds": self.seconds,
        }

    def _record(self, each: Individual) -> dict[str, Any]:
        known = [self.course.results.get(step.number) for step in each.steps]
        last = next((result for result in reversed(known) if result), None)
        return {
            "individual": each.number,
            "parent": each.parent,
            "point": dict(each.point),
            "words": list(self.space.overrides(each.point)),
            "state": last.kind if last else "open",
            "why": last.why if last else "",
            "updates": sum(result.updates for result in known if result),
            "values": self.values(last.fitness) if last and _is_finite(last.fitness) else None,
            "seeds": _as_record(self.spread(each)),
            "costs": last.costs if last else {},
            "seconds": sum(result.seconds for result in known if result),
        }

    def _record_again(self, each: Again) -> dict[str, Any]:
        spread = Spread.of(self.goals[0], [value[0] for value in each.values])
        return {
            "individual": each.individual.number,
            "words": list(self.space.overrides(each.individual.point)),
            "found": self.values(each.found),
            "values": [self.values(value) for value in each.values],
            **(_as_record(spread) or {}),
            "line": self.lines[each.individual.number],
            "regret": None if math.isnan(each.regret()) else each.regret(),
        }


def _as_record(spread: Spread | None) -> dict[str, Any] | None:
    return asdict(spread) if spread else None


def _is_finite(fitness: Fitness) -> bool:
    return all(map(math.isfinite, fitness))


def _read_rerun(jobs: SearchJobs, rerun: Rerun) -> Fitness | None:
    """The finite fitness of a fresh seed; None without one."""
    if jobs.states[rerun.name].kind != "done":
        return None
    value = jobs.read_fitness(rerun.name, jobs.costs.get(rerun.individual, {}))
    return value if _is_finite(value) else None


def _count_again(course: Course, jobs: SearchJobs) -> int:
    """The updates on fresh seeds."""
    ended = [each for each in jobs.reruns or () if jobs.states[each.name].kind != "open"]
    lengths = [course.measure(course.individuals[each.individual].point) for each in ended]
    counts = (jobs.count_updates(e.name, n) for e, n in zip(ended, lengths, strict=True))
    return sum(counts)


def _count_lost(jobs: SearchJobs) -> dict[int, int]:
    ended = [each for each in jobs.reruns or () if jobs.states[each.name].kind != "open"]
    return dict(Counter(each.individual for each in ended if _read_rerun(jobs, each) is None))


def _read_again(course: Course, jobs: SearchJobs) -> list[Again]:
    found: dict[int, list[Fitness]] = {}
    for rerun in jobs.reruns or ():
        if (value := _read_rerun(jobs, rerun)) is not None:
            found.setdefault(rerun.individual, []).append(value)
    individuals = [course.individuals[number] for number in found]
    return [
        Again(
            each, each.fitness or (), found[each.number], each.updates >= course.measure(each.point)
        )
        for each in individuals
    ]


def find_front(individuals: Sequence[Individual]) -> list[Individual]:
    """The individuals that no other one dominates."""
    fit = [each for each in individuals if each.fit]
    return [
        each
        for each in fit
        if not any(dominates(o.fitness, each.fitness) for o in fit if o.fitness and each.fitness)
    ]


def find_best(course: Course, count: int, *, whole: bool = True) -> list[Individual]:
    """The best individuals, the best first; of several goals, the front first.

    Args:
        count: The most individuals.
        whole: Whether shorter trainings than the longest are left out.
    """
    fit = [each for each in course.individuals if each.fit and _is_own(course, each)]
    if whole:
        fit = _leave_out_parts(course, fit)
    ranks = _rank(fit)
    ordered = sorted(fit, key=lambda each: (ranks[each.number], each.number))
    return ordered[:count]


def _leave_out_parts(course: Course, individuals: Sequence[Individual]) -> list[Individual]:
    """The individuals with the longest trainings; all of them where none is trained in parts."""
    if not course.strategy.pauses:
        return list(individuals)
    most = max((each.updates for each in individuals), default=0)
    return [each for each in individuals if each.updates == most]


def _is_own(course: Course, individual: Individual) -> bool:
    """Whether its results are its own, not copies of an equal individual."""
    return all(result.kind == "trained" for result in individual.results)


def _rank(individuals: Sequence[Individual]) -> Mapping[int, tuple[float, ...]]:
    """{individual: what it is ordered by}: by how many it is dominated, then its first goal."""
    ranks: dict[int, tuple[float, ...]] = {}
    for each in individuals:
        assert each.fitness is not None
        own = each.fitness
        worse = 0
        if len(own) > 1:
            worse = sum(dominates(o.fitness, own) for o in individuals if o.fitness)
        ranks[each.number] = (float(worse), -own[0])
    return ranks
