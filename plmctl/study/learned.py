"""Runs of a study without a lesson learned: differences among them say nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from plmctl.study.results import Results
from plmctl.study.study import PRETRAIN, Metric

MARK = "†"
UNBEATEN = (
    "{task}: {count} scored no better than models without pretraining (in brackets how many runs):"
    " simple models of the same examples answer at least as well"
)
ONE_ANSWER = "{task}: {count} give one answer to every example (in brackets how many runs)"
MARKED = (
    "{mark} {metric}: {arms} and the baseline learned nothing in half of their runs or more: {why}."
    " Their p and verdict say nothing about what is learned."
)
TUNED = "they give one answer to all, or simple models score as well"
PRETRAINED = (
    "their losses are no better than those of the frequencies of single tokens, or of one constant"
    " answer"
)


class Unlearned:
    """The done runs that learned nothing."""

    def __init__(self, results: Results) -> None:
        self.results, self.plan = results, results.plan
        self.runs = {
            (task, arm): [
                (name, cell)
                for cell in results.cells(arm)
                if task in cell.tuned
                for name in results.list_done(task, cell)
            ]
            for task in results.plan.study.tasks
            for arm in results.plan.arms
        }
        self.unbeaten = self._count(lambda name, task, cell: results.is_unbeaten(name, task, cell))
        self.constant = self._count(lambda name, task, cell: results.is_constant(name))

    def _count(self, judge: Callable[..., bool]) -> dict[tuple[str, str], set[str]]:
        """{(task, arm): its runs for which `judge` is true}."""
        found = {
            (task, arm): {name for name, cell in runs if judge(name, task, cell)}
            for (task, arm), runs in self.runs.items()
        }
        return {place: names for place, names in found.items() if names}

    def is_idle(self, metric: Metric, arm: str) -> bool:
        """Whether half of the runs of an arm or more have learned nothing that a metric counts."""
        task = self._find_source(metric)
        if task == PRETRAIN:
            if metric.key.startswith("start/"):  # before anything is learned
                return False
            target = metric.key.partition("/")[2] if metric.of == PRETRAIN else ""
            cells = self.results.cells(arm)
            runs = {name for cell in cells for name in self.results.list_done(PRETRAIN, cell)}
            near = [name for name in runs if self.results.is_near_floor(name, target)]
            return bool(near) and 2 * len(near) >= len(runs)
        idle = self.unbeaten.get((task, arm), set()) | self.constant.get((task, arm), set())
        return bool(idle) and 2 * len(idle) >= len(self.runs[task, arm])

    def _find_source(self, metric: Metric) -> str:
        """The task of a metric, or pretraining: the runs that give its values."""
        node = self.plan.study.evals.get(metric.of)
        return node.of if node else metric.of

    def find_marked(self) -> dict[str, list[str]]:
        """{metric: the arms that learned nothing of it, as the baseline}."""
        study, found = self.plan.study, dict[str, list[str]]()
        for name, metric in study.metrics.items():
            if self.is_idle(metric, study.baseline):
                others = (arm for arm in study.arms if arm != study.baseline)
                others = (arm for arm in others if self.results.values(metric, arm))
                if arms := [arm for arm in others if self.is_idle(metric, arm)]:
                    found[name] = arms
        return found

    def list_notes(self) -> list[str]:
        """The lines on them below a table."""
        metrics, lines = self.plan.study.metrics, list[str]()
        for name, arms in self.find_marked().items():
            why = PRETRAINED if self._find_source(metrics[name]) == PRETRAIN else TUNED
            lines.append(MARKED.format(mark=MARK, metric=name, arms=", ".join(arms), why=why))
        return [*_spell(ONE_ANSWER, self.constant), *_spell(UNBEATEN, self.unbeaten), *lines]


def _spell(line: str, found: dict[tuple[str, str], set[str]]) -> Iterable[str]:
    """A line for each task with the arms and their numbers of runs."""
    counts = dict[str, Counter[str]]()
    for (task, arm), names in found.items():
        counts.setdefault(task, Counter())[arm] += len(names)
    for task, own in counts.items():
        yield line.format(task=task, count=", ".join(f"{arm} ({n})" for arm, n in own.items()))
