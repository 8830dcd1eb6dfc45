"""Fine-tunings of a study without a lesson learned: differences among them say nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from plmctl.study.results import Results

MARK = "†"
UNBEATEN = (
    "{task}: {count} scored no better than models without pretraining (in brackets how many runs):"
    " simple models of the same examples answer at least as well"
)
ONE_ANSWER = "{task}: {count} give one answer to every example (in brackets how many runs)"
MARKED = (
    "{mark} {metric}: {arms} and the baseline learned nothing in half of their runs or more: they"
    " give one answer to all, or simple models score as well. Their p and verdict say nothing about"
    " what is learned."
)


class Unlearned:
    """The done fine-tunings that learned nothing."""

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

    def is_idle(self, task: str, arm: str) -> bool:
        """Whether half of the runs of an arm or more have learned nothing of a task."""
        idle = self.unbeaten.get((task, arm), set()) | self.constant.get((task, arm), set())
        return bool(idle) and 2 * len(idle) >= len(self.runs[task, arm])

    def find_marked(self) -> dict[str, list[str]]:
        """{metric: the arms that learned nothing of its task, as the baseline}."""
        study, found = self.plan.study, dict[str, list[str]]()
        for name, metric in study.metrics.items():
            node = study.evals.get(metric.of)
            task = node.of if node else metric.of
            if task in study.tasks and self.is_idle(task, study.baseline):
                others = (arm for arm in study.arms if arm != study.baseline)
                if arms := [arm for arm in others if self.is_idle(task, arm)]:
                    found[name] = arms
        return found

    def list_notes(self) -> list[str]:
        """The lines on them below a table."""
        marked = self.find_marked().items()
        return [
            *_spell(ONE_ANSWER, self.constant),
            *_spell(UNBEATEN, self.unbeaten),
            *(MARKED.format(mark=MARK, metric=name, arms=", ".join(arms)) for name, arms in marked),
        ]


def _spell(line: str, found: dict[tuple[str, str], set[str]]) -> Iterable[str]:
    """A line for each task with the arms and their numbers of runs."""
    counts = dict[str, Counter[str]]()
    for (task, arm), names in found.items():
        counts.setdefault(task, Counter())[arm] += len(names)
    for task, own in counts.items():
        yield line.format(task=task, count=", ".join(f"{arm} ({n})" for arm, n in own.items()))
