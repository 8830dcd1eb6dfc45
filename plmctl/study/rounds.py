"""The seeds of the arms that run next: all at once, or in rounds. Rounds go on until all is decided
or the time of the study is up.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping

from plmctl.core.progress import clock
from plmctl.jobs.journal import JobJournal, State
from plmctl.storage.job_events import measure_time
from plmctl.study.looks import Looks
from plmctl.study.plan import StudyCell, StudyPlan
from plmctl.study.results import Results


class Rounds:
    """The parts of a plan that are run one after the other; each has all cells of the one before.

    A plan without `until` and `hours` has one part. Where there is a limit of time, a part is a
    seed of all arms, else what is needed for the next look.

    Args:
        plan: The plan of the whole study.
        states: The states of all its jobs at the start.
        journal: to which the jobs of each part are added.
        looks: made where a part is complete; None for none.
    """

    def __init__(
        self, plan: StudyPlan, states: Mapping[str, State], journal: JobJournal, looks: Looks | None
    ) -> None:
        self.plan, self.study = plan, plan.study
        self.states, self.journal, self.looks = states, journal, looks
        self.part = plan.select([])  # the part of the plan that runs
        self.end = ""  # why it came to an end before all seeds were spent

    def __iter__(self) -> Iterator[StudyPlan]:
        """Yield a part as soon as the one before has been run; whoever is stopped by a signal asks
        for no further one, and nothing is looked at.
        """
        for seeds in self._list_counts():
            part = self.plan.select(self._select_cells(seeds))
            self.end = self._find_lack_of_time(part)
            if not self.end or not self.part.cells:
                self.part = part
                self.journal.add(part.jobs)
            if self.end:
                return
            yield part
            if self.looks is None:
                continue
            if seeds >= self.looks.first and seeds > self.looks.seeds:
                self.looks.look(seeds, Results(part, self.journal.states, self.journal.locate))
            if self.looks.made and not self.looks.list_open():
                self.end = f"All is decided after {seeds} seeds of at most {len(self.study.seeds)}."
                return

    def measure_time(self) -> float:
        """The seconds that the study has taken so far, over all starts."""
        return measure_time(self.journal.folder, self.plan.jobs)

    def _list_counts(self) -> list[int]:
        """How many seeds there are in each part."""
        most = len(self.study.seeds)
        if self.looks is None:
            return [most] if self.study.hours is None else list(range(1, most + 1))
        # the results at an earlier look are complete, except for jobs that failed
        if self.looks.made:
            return list(range(self.looks.seeds, most + 1))
        return list(range(1 if self.study.hours else self.looks.first, most + 1))

    def _select_cells(self, seeds: int) -> list[StudyCell]:
        """The cells of a part: an arm that is decided keeps the seeds that it has."""
        counts = dict.fromkeys(self.study.arms, seeds)
        if self.looks is not None and self.looks.made:
            growing = {self.study.baseline, *self.looks.list_open()}
            counts |= {a: self.looks.count_seeds(a) for a in counts if a not in growing}
        return [
            cell for cell in self.plan.cells if cell.seed in self.study.seeds[: counts[cell.arm]]
        ]

    def _find_lack_of_time(self, part: StudyPlan) -> str:
        """Why a part would take the study over its limit, by the time of jobs like its own; empty
        where it fits, or where nothing is known yet.
        """
        seconds = self._estimate_time(part)
        if self.study.hours is None or not seconds:
            return ""
        spent = self.measure_time()
        if spent + seconds <= 3600 * self.study.hours:
            return ""
        return (
            f"Ended by budget.hours={self.study.hours:g}: {clock(spent)} are spent, and the next"
            f" seeds would take about {clock(seconds)}. More of them: budget.hours=<more>."
        )

    def _estimate_time(self, part: StudyPlan) -> float:
        """The seconds that the open jobs of a part will take, as the same jobs of other seeds did;
        0 where none has ended.
        """
        states, last = {**self.states, **self.journal.states}, self.journal.events.of
        taken = {name: last(name).seconds for name in states if states[name].kind == "done"}
        total = sum(taken.values())
        if not total:
            return 0.0
        alike: dict[tuple[str, int], list[str]] = {}
        for cell in self.plan.cells:
            for index, name in enumerate(cell.jobs):
                alike.setdefault((cell.arm, index), []).append(name)
        others = {name: names for names in alike.values() for name in names}
        seconds = 0.0
        for name in part.jobs:
            if states[name].kind == "open":
                known = [taken[other] for other in others.get(name, ()) if other in taken]
                seconds += statistics.fmean(known or taken.values())
        # side by side, jobs take less time than one after the other
        return seconds * min(1.0, self.measure_time() / total)
