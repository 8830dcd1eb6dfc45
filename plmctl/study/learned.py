"""Runs of a study that learned nothing, or are no better than simple models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from plmctl.study.results import Results
from plmctl.study.study import PRETRAIN, Metric

MARK = "†"
UNBEATEN = (
    "{task}: {count} scored no better than models without pretraining (in brackets how many runs):"
    " simple models answer at least as well{read}"
)
ONE_ANSWER = "{task}: {count} give one answer to every example (in brackets how many runs)"
MARKED = "{mark} {metric}: {arms} and the baseline, in half of their runs or more, {what}"
CONSTANT = (
    "learned nothing: they give one answer to all. Their p and verdict say nothing about what is"
    " learned."
)
BELOW = (
    "scored no better than simple models without pretraining. Their p and verdict are of models"
    " that are of no use yet."
)
PRETRAINED = (
    "learned nothing: their losses are no better than those of the frequencies of single tokens,"
    " or of one constant answer. Their p and verdict say nothing about what is learned."
)

EQUAL = (
    "{arm}: acc/{term} is {value:.4g} in all {seeds} seeds. So they give one constant answer, as it"
    " seems: compare its losses with care"
)
SEEDS = 3  # as many equal accuracies are no chance


class Unlearned:
    """The done runs that learned nothing, or are no better than simple models."""

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
        """Whether half of the runs of an arm or more have learned nothing that a metric counts, or
        are no better than simple models.
        """
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

    def _is_constant(self, metric: Metric, arm: str) -> bool:
        """Whether half of the fine-tunings of an arm or more give one answer to all."""
        place = self._find_source(metric), arm
        return 2 * len(self.constant.get(place, ())) >= len(self.runs.get(place, ())) > 0

    def _find_source(self, metric: Metric) -> str:
        """The task of a metric, or pretraining: the runs that give its values."""
        node = self.plan.study.evals.get(metric.of)
        return node.of if node else metric.of

    def find_marked(self) -> dict[str, list[str]]:
        """{metric: the arms that are idle in it, as the baseline is}."""
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
            metric = metrics[name]
            constant = self._is_constant(metric, self.plan.study.baseline)
            found: dict[str, list[str]] = {}
            for arm in arms:
                tuned = CONSTANT if constant and self._is_constant(metric, arm) else BELOW
                what = PRETRAINED if self._find_source(metric) == PRETRAIN else tuned
                found.setdefault(what, []).append(arm)
            for what, own in found.items():
                lines.append(MARKED.format(mark=MARK, metric=name, arms=", ".join(own), what=what))
        reads = {task: self._describe_read(task) for task, _ in self.unbeaten}
        unbeaten = _spell(UNBEATEN, self.unbeaten, reads)
        return [*_spell(ONE_ANSWER, self.constant), *self._list_equal(), *unbeaten, *lines]

    def _list_equal(self) -> Iterable[str]:
        """A line for each arm whose pretrainings have one accuracy, to the last digit."""
        for arm in self.plan.arms:
            cells = self.results.cells(arm)
            runs = {name for cell in cells for name in self.results.list_done(PRETRAIN, cell)}
            ends = [self.results.read_ends(name) for name in runs]
            for key in ends[0] if len(ends) >= SEEDS else ():
                kind, _, term = key.partition("/")
                values = {own.get(key) for own in ends}
                if kind == "acc" and len(values) == 1 and 0 < ends[0][key] < 1:
                    value = ends[0][key]
                    yield EQUAL.format(arm=arm, term=term, value=value, seeds=len(ends))

    def _describe_read(self, task: str) -> str:
        """How many training examples both have read, by each of its runs that is no better."""
        names = (name for (of, _), own in self.unbeaten.items() if of == task for name in own)
        return "".join(dict.fromkeys(map(self.results.describe_read, names)))


def _spell(
    line: str, found: Mapping[tuple[str, str], set[str]], reads: Mapping[str, str] | None = None
) -> Iterable[str]:
    """A line for each task with the arms and their numbers of runs."""
    counts = dict[str, Counter[str]]()
    for (task, arm), names in found.items():
        counts.setdefault(task, Counter())[arm] += len(names)
    for task, own in counts.items():
        count = ", ".join(f"{arm} ({n})" for arm, n in own.items())
        yield line.format(task=task, count=count, read=(reads or {}).get(task, ""))
