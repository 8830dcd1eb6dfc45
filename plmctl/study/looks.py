"""The looks at a study's results in its folder: STUDY/looks.json. Only a study that spends seeds
until all is decided has this file.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from plmctl.analysis.sequences import FIRST, Comparison, Evidence, Look, evaluate_looks, spend
from plmctl.analysis.statistics import Difference, compare, judge
from plmctl.core.errors import DataError, UsageError
from plmctl.jobs.journal import State
from plmctl.storage.atomic import write_json
from plmctl.storage.reading import parse_json
from plmctl.study.plan import StudyPlan
from plmctl.study.results import Results

LOOKS = "looks.json"


class Looks:
    """The looks made so far, which a start goes on with.

    Args:
        plan: The plan of the whole study.
        folder: The folder of the study.
        first: seeds at the first look.
        made: the oldest first.
    """

    def __init__(self, plan: StudyPlan, folder: Path, first: int, made: list[Look]) -> None:
        self.plan, self.study, self.file = plan, plan.study, folder / LOOKS
        self.first, self.made = first, made

    @property
    def seeds(self) -> int:
        """How many seeds the newest look had; 0 before the first."""
        return self.made[-1].seeds if self.made else 0

    def share(self, seeds: int, before: int) -> float:
        """The share of the level for a look at so many seeds, after one at `before`."""
        most = len(self.study.seeds)
        return spend(seeds, most) - spend(before, most)

    def schedule(self) -> list[tuple[int, float]]:
        """(seeds, share of the level) of all looks, those to come included."""
        counts = range(max(self.first, self.seeds + 1), len(self.study.seeds) + 1)
        known = [(look.seeds, look.share) for look in self.made]
        before = [self.seeds, *counts]
        coming = zip(counts, before, strict=False)
        return known + [(seeds, self.share(seeds, last)) for seeds, last in coming]

    def test(self) -> dict[Comparison, Evidence]:
        """Every comparison that was looked at."""
        return self.study.share_tests(evaluate_looks(self.made, self.study.comparisons))

    def list_open(self) -> list[str]:
        """The arms with an expectation that is undecided."""
        tested = self.test()
        undecided = {
            arm
            for name, metric in self.study.metrics.items()
            for arm, side in metric.expect.items()
            if judge_tested(side, tested.get((name, arm))) == "undecided"
        }
        return [arm for arm in self.study.arms if arm in undecided]

    def count_seeds(self, arm: str) -> int:
        """How many seeds of an arm were spent by the newest look."""
        counts = [
            look.seeds
            for look in self.made
            if arm == self.study.baseline or any(other == arm for _, other in look.differences)
        ]
        return max(counts, default=0)

    def look(self, seeds: int, results: Results) -> None:
        """Look at the results of so many seeds, and write down what was seen."""
        arms = self.list_open() if self.made else list(self.study.arms)
        differences: dict[Comparison, Difference] = {}
        for name, arm in self.study.comparisons:
            metric = self.study.metrics[name]
            values = [results.values(metric, which) for which in (arm, self.study.baseline)]
            difference = compare(*values) if arm in arms else None
            if difference is not None:
                differences[name, arm] = difference
        self.made.append(Look(seeds, self.share(seeds, self.seeds), differences))
        looks = [_write_look(look) for look in self.made]
        content = {"study": _identify(self.plan), "seeds": self.study.seeds, "looks": looks}
        write_json(self.file, content)


def judge_tested(expected: str, tested: Evidence | None) -> str:
    """The verdict on an expectation after all looks."""
    return judge(expected, tested.difference, tested.p_holm) if tested else judge(expected, None)


def open_looks(plan: StudyPlan, folder: Path, states: Mapping[str, State]) -> Looks | None:
    """The looks of a study; None where it spends all its seeds at once.

    Args:
        plan: The plan of the whole study.
        folder: The folder of the study.
        states: The states of its jobs. Seeds that have run before anybody looked count as one look.

    Raises:
        UsageError: the folder has looks at another study, or of a start with other settings.
    """
    file, study = folder / LOOKS, plan.study
    elsewhere = "out=<another folder>"
    if not file.is_file():
        done = [
            study.seeds.index(cell.seed) + 1
            for cell in plan.cells
            if all(states[name].kind == "done" for name in cell.jobs)
        ]
        return Looks(plan, folder, max([FIRST, *done]), []) if study.until else None
    if study.until is None:
        raise UsageError(
            f"{file}: this study has been looked at after every round, for which its p-values"
            f" have to be corrected\n  fix: until=decided, or {elsewhere}"
        )
    try:
        content = parse_json(file.read_text(encoding="utf-8"))
        made = [_read_look(record) for record in content["looks"]]
        seeds, identity = content["seeds"], content["study"]
    except (ValueError, KeyError, TypeError) as error:
        fix = f"{elsewhere}; which levels are spent is known from this file alone"
        raise DataError("cannot be read", file=file, fix=fix) from error
    if seeds != study.seeds:
        listed = ",".join(map(str, seeds))
        raise UsageError(
            f"seeds={study.seeds}: this study has begun with {seeds}, which fixed the levels of its"
            f" looks\n  fix: seeds=[{listed}], or {elsewhere}"
        )
    if identity != _identify(plan):
        raise UsageError(
            f"{file}: arms, metrics or data have changed since this study was looked at; its looks"
            f" say nothing about the new ones\n  fix: {elsewhere}"
        )
    return Looks(plan, folder, made[0].seeds if made else FIRST, made)


def _identify(plan: StudyPlan) -> str:
    """The identity of the looks: the jobs of every arm, with their metrics and expectations."""
    study = plan.study
    metrics = {
        name: [metric.of, metric.key, metric.exp, metric.expect]
        for name, metric in study.metrics.items()
    }
    cells = [[cell.arm, cell.seed, cell.jobs] for cell in plan.cells]
    text = json.dumps([study.baseline, metrics, cells], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _write_look(look: Look) -> dict[str, Any]:
    differences = [
        {"metric": metric, "arm": arm, **dataclasses.asdict(difference)}
        for (metric, arm), difference in look.differences.items()
    ]
    return {"seeds": look.seeds, "share": look.share, "differences": differences}


def _read_look(record: Mapping[str, Any]) -> Look:
    differences = {
        (node.pop("metric"), node.pop("arm")): Difference(**node) for node in record["differences"]
    }
    return Look(record["seeds"], record["share"], differences)
