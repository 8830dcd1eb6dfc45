"""Benchmarks of several tasks with their averages: GLUE (Wang et al., 2019, arXiv:1804.07461) and
SuperGLUE (Wang et al., 2019, arXiv:1905.00537) with human scores, CLUE (Xu et al., 2020,
arXiv:2004.05986).
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from plmctl.report.charts import Level, draw_levels, draw_lines
from plmctl.report.page import Block, Chart, Paragraph, TableBlock
from plmctl.report.panel import panel_of
from plmctl.report.subject import ReportedRun, Subject

Scores = Mapping[str, Mapping[str, float]]  # task: {metric: percent}
MISMATCHED = "accuracy, mismatched"  # the accuracy on MNLI's second dev set


@dataclass(frozen=True)
class Benchmark:
    """Tasks that are averaged.

    Args:
        name: The published name.
        reading: The way to read its table.
        metrics: {task: the metrics of which the mean is its score}; none: those of `people`.
        people: {task: {metric: what people reach, in percent}}.
        left_out: tasks that the average leaves out.
        others: A pattern of files of another benchmark, which has tasks of the same names.
        also: {name: another average}.
    """

    name: str
    reading: str
    metrics: Mapping[str, Sequence[str]] = field(default_factory=dict)
    people: Scores = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    others: str = "(?!)"  # the default is of no file
    also: Mapping[str, Callable[[Scores], float | None]] = field(default_factory=dict)

    @property
    def tasks(self) -> Mapping[str, Sequence[str]]:
        """{task: its metrics}."""
        return self.metrics or {task: [*own] for task, own in self.people.items()}

    @property
    def counted(self) -> list[str]:
        """The tasks that are averaged."""
        return [task for task in self.tasks if task not in self.left_out]

    def takes(self, task: str, result: Mapping[str, Any]) -> bool:
        """Whether a result is of one of the tasks, by the files that were read."""
        files = result.get("skipped") or {}
        return task in self.tasks and not any(re.search(self.others, file) for file in files)

    def read_scores(self, result: Mapping[str, Any], task: str) -> dict[str, float]:
        """The scores of `task` on its dev split in percent, with those of a mismatched one."""
        metrics, percent = result["metrics"], result.get("percent") or ()
        other = (metrics.get("dev_mismatched") or {}).get("accuracy")
        found = dict(metrics.get("dev") or {})
        found |= {} if other is None else {MISMATCHED: other}
        return {
            name: value if name in percent else 100 * value
            for name, value in found.items()
            if name in self.tasks[task]
        }

    def score(self, task: str, values: Mapping[str, float]) -> float | None:
        """The mean of the task's metrics; None if one is missing."""
        return average([values.get(name) for name in self.tasks[task]])

    def average_scores(self, scores: Scores) -> float | None:
        """The plain mean over all counted tasks; None if one is missing."""
        return average([self.score(task, scores.get(task, {})) for task in self.counted])


def average(values: Sequence[float | None]) -> float | None:
    """The mean; None if one is missing."""
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if len(known) == len(values) else None


# the columns of BERT's table 1 (Devlin et al., 2019): one metric a task, MNLI's two sets apart
BERT = {
    "cola": ["matthews"],
    "sst2": ["accuracy"],
    "mrpc": ["f1"],
    "stsb": ["spearman"],
    "qqp": ["f1"],
    "mnli": ["accuracy", MISMATCHED],
    "qnli": ["accuracy"],
    "rte": ["accuracy"],
}


def bert_average(scores: Scores) -> float | None:
    """The average of BERT's table 1: nine columns, F1 of MRPC and QQP, Spearman of STS-B."""
    return average(
        [scores.get(task, {}).get(name) for task, names in BERT.items() for name in names]
    )


GLUE = Benchmark(
    name="GLUE",
    # Nangia and Bowman, 2019, table 1, and "GLUE Human Baselines" of the leader board
    people={
        "cola": {"matthews": 66.4},
        "sst2": {"accuracy": 97.8},
        "mrpc": {"f1": 86.3, "accuracy": 80.8},
        "stsb": {"pearson": 92.7, "spearman": 92.6},
        "qqp": {"f1": 59.5, "accuracy": 80.4},
        "mnli": {"accuracy": 92.0, MISMATCHED: 92.8},
        "qnli": {"accuracy": 91.2},
        "rte": {"accuracy": 93.6},
        "wnli": {"accuracy": 95.9},
    },
    # "we exclude the problematic WNLI set" (Devlin et al., 2019, sec. 4.1)
    left_out=("wnli",),
    also={"average as in BERT's table 1": bert_average},
    reading=(
        "On dev, in percent; several runs of a task from one checkpoint are averaged. Average: over"
        " eight tasks, without WNLI, a task with two metrics by their mean (Wang et al., 2019); as"
        " in BERT's table 1: F1 of MRPC and QQP, Spearman of STS-B, MNLI's two sets apart (Devlin"
        " et al., 2019). Published figures are of the test sets. People: Nangia and Bowman (2019)."
    ),
)
SUPERGLUE = Benchmark(
    name="SuperGLUE",
    # Wang et al., 2019, table 3
    people={
        "boolq": {"accuracy": 89.0},
        "cb": {"macro_f1": 95.8, "accuracy": 98.9},
        "copa": {"accuracy": 100.0},
        "multirc": {"f1": 81.8, "exact": 51.9},
        "record": {"f1": 91.7, "exact": 91.3},
        "superglue_rte": {"accuracy": 93.6},
        "wic": {"accuracy": 80.0},
        "wsc": {"accuracy": 100.0},
    },
    reading=(
        "On dev, in percent; several runs of a task from one checkpoint are averaged. Average: over"
        " all eight tasks, a task with two metrics by their mean. Published figures are of the test"
        " sets. People: Wang et al. (2019)."
    ),
)
_CLUE = {
    **{name: ["accuracy"] for name in ("tnews", "iflytek", "cluewsc2020", "afqmc", "csl", "ocnli")},
    "cmrc2018": ["exact"],
    **{name: ["accuracy"] for name in ("chid", "c3", "cmnli")},
}


def clue_average(scores: Scores) -> float | None:
    """The average over ten tasks, with CMNLI."""
    return average(
        [scores.get(task, {}).get(name) for task, names in _CLUE.items() for name in names]
    )


CLUE = Benchmark(
    name="CLUE",
    metrics=_CLUE,
    left_out=("cmnli",),  # the paper has OCNLI alone
    others=r"(train|dev)_(\d+|few_all)\.",  # FewCLUE's
    also={"average with CMNLI": clue_average},
    reading=(
        "On dev, in percent; several runs of a task from one checkpoint are averaged. Average: over"
        " the nine tasks of the paper (Xu et al., 2020), CMRC 2018 by exact match, whichever metric"
        " of it chose the checkpoint. Tables of ten tasks have CMNLI, too. Published figures are"
        " often of the test sets. FewCLUE is another benchmark, and left out."
    ),
)
Groups = dict[str, dict[str, dict[str, float]]]  # checkpoint: {task: {metric: percent}}
# pretraining: {task: {update: the score of each run from that checkpoint}}
Followed = dict[str, dict[str, dict[int, list[float]]]]
_STEP = re.compile(r"(.+?)(?:/checkpoints)?/step-(\d+)/?")
AVERAGE = "average"


@panel_of(Subject, order=2, title=GLUE.name)
def glue(subject: Subject) -> list[Block]:
    """A table of tasks and averages, and for each checkpoint a picture of its scores."""
    return _show(GLUE, subject)


@panel_of(Subject, order=2.5, title=SUPERGLUE.name)
def superglue(subject: Subject) -> list[Block]:
    """A table of tasks with their average, and for each checkpoint a picture of its scores."""
    return _show(SUPERGLUE, subject)


@panel_of(Subject, order=2.7, title=CLUE.name)
def clue(subject: Subject) -> list[Block]:
    """A table of tasks with their averages, and for each checkpoint a picture of its scores."""
    return _show(CLUE, subject)


def _show(benchmark: Benchmark, subject: Subject) -> list[Block]:
    """The blocks; none where no run is on one of the tasks."""
    runs = subject.runs
    groups = group_runs(benchmark, runs)
    if not groups:
        return []
    blocks: list[Block] = [Paragraph(benchmark.reading), _table(benchmark, groups)]
    blocks += [Paragraph(f"{line}.") for line in subject.list_unlike()]
    followed = follow_pretraining(benchmark, runs)
    blocks += _draw_followed(benchmark, followed)
    for number, (start, scores) in enumerate(groups.items()):
        if (match := _STEP.fullmatch(start)) and match[1] in followed:
            continue
        if svg := _draw_scores(benchmark, start, scores):
            blocks.append(Chart(f"{benchmark.name.lower()}-{number}", svg))
    return blocks


def _draw_scores(benchmark: Benchmark, start: str, scores: Scores) -> str:
    """The scores of a checkpoint, as shares of human scores where these are known; or ""."""
    known = {task: benchmark.score(task, scores.get(task, {})) for task in benchmark.tasks}
    values = {task: value for task, value in known.items() if value is not None}
    if not values:
        return ""
    if not benchmark.people:
        plain = [Level(task, value) for task, value in values.items()]
        return draw_levels(plain, title=f"Scores, {start}", x="%", start=0)
    shares = [
        Level(task, 100 * value / statistics.fmean(benchmark.people[task].values()))
        for task, value in values.items()
    ]
    title, marks = f"Share of the human baseline, {start}", {"people": 100.0}
    return draw_levels(shares, title=title, x="% of people's score", marks=marks, start=0)


def follow_pretraining(benchmark: Benchmark, runs: Sequence[ReportedRun]) -> Followed:
    """The scores of fine-tunings from several checkpoints of one pretraining (as Devlin et al.,
    2019, fig. 5), in percent; the average where a checkpoint has all counted tasks.
    """
    found: Followed = {}
    for run in runs:
        match = _STEP.fullmatch(str(run.log.config.get("checkpoint") or ""))
        if match and run.result and benchmark.takes(run.task, run.result):
            values = benchmark.read_scores(run.result, run.task)
            if (score := benchmark.score(run.task, values)) is not None:
                steps = found.setdefault(match[1], {}).setdefault(run.task, {})
                steps.setdefault(int(match[2]), []).append(score)
    for start, scores in group_runs(benchmark, runs).items():
        match, mean = _STEP.fullmatch(start), benchmark.average_scores(scores)
        if match and match[1] in found and mean is not None:
            found[match[1]].setdefault(AVERAGE, {})[int(match[2])] = [mean]
    return {name: tasks for name, tasks in found.items() if max(len(s) for s in tasks.values()) > 1}


def _draw_followed(benchmark: Benchmark, followed: Followed) -> list[Block]:
    """A small picture for each task, with a line for each pretraining."""
    blocks: list[Block] = []
    for task in (AVERAGE, *benchmark.tasks):
        own = {
            name: sorted(tasks[task].items()) for name, tasks in followed.items() if task in tasks
        }
        curves = {
            name: [(float(step), statistics.fmean(values)) for step, values in steps]
            for name, steps in own.items()
        }
        bands = {
            name: [(float(step), min(values), max(values)) for step, values in steps]
            for name, steps in own.items()
            if any(len(values) > 1 for _, values in steps)
        }
        if curves:
            metric = "mean" if task == AVERAGE else " / ".join(benchmark.tasks[task])
            title = f"{task} during pretraining"
            svg = draw_lines(curves, title=title, x="updates", y=f"{metric}, %", bands=bands)
            blocks.append(Chart(f"{benchmark.name.lower()}-over-time-{task}", svg))
    return blocks


def group_runs(benchmark: Benchmark, runs: Sequence[ReportedRun]) -> Groups:
    """The scores of the runs on the tasks of a benchmark, means over runs of the same task and
    checkpoint.
    """
    by_start: dict[str, dict[str, list[dict[str, float]]]] = {}
    for run in runs:
        if run.result and benchmark.takes(run.task, run.result):
            start = str(run.log.config.get("checkpoint") or "from scratch")
            by_start.setdefault(start, {}).setdefault(run.task, []).append(
                benchmark.read_scores(run.result, run.task)
            )
    return {
        start: {task: _means(each) for task, each in tasks.items()}
        for start, tasks in by_start.items()
    }


def _means(scores_of_runs: Sequence[dict[str, float]]) -> dict[str, float]:
    names = [name for name in scores_of_runs[0] if all(name in values for values in scores_of_runs)]
    return {name: statistics.fmean(values[name] for values in scores_of_runs) for name in names}


def _table(benchmark: Benchmark, groups: Groups) -> TableBlock:
    people = [benchmark.people] if benchmark.people else []
    columns: list[Scores] = [*groups.values(), *people]
    rows = []
    for task, names in benchmark.tasks.items():
        cells = [_cell(benchmark, task, scores) for scores in columns]
        if any(cells[: len(groups)]):
            rows.append([task, " / ".join(names), *cells])
    for name, average in {"average": benchmark.average_scores, **benchmark.also}.items():
        cells = [_average(benchmark, average(scores), scores) for scores in columns]
        rows.append([name, "", *cells])
    return TableBlock(["task", "metric", *groups, *(["people"] if people else [])], rows)


def _cell(benchmark: Benchmark, task: str, scores: Scores) -> str:
    values = scores.get(task, {})
    return " / ".join(f"{values[name]:.1f}" for name in benchmark.tasks[task] if name in values)


def _average(benchmark: Benchmark, value: float | None, scores: Scores) -> str:
    counted = benchmark.counted
    there = sum(benchmark.score(task, scores.get(task, {})) is not None for task in counted)
    return f"{there} of {len(counted)} tasks" if value is None else f"{value:.1f}"
