"""Benchmarks of several tasks, each with an average, beside the score of people."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

Scores = Mapping[str, Mapping[str, float]]  # task: {metric: percent}
MISMATCHED = "accuracy, mismatched"  # of MNLI's second dev set


@dataclass(frozen=True)
class Benchmark:
    """Tasks that are averaged.

    Args:
        name: as it is published.
        people: {task: {metric: what people reach, in percent}}; the metrics are those of which the
            mean is the score of the task.
        reading: how its table is to be read.
        left_out: tasks that the average leaves out.
        also: {name: another average}.
    """

    name: str
    people: Scores
    reading: str
    left_out: tuple[str, ...] = ()
    also: Mapping[str, Callable[[Scores], float | None]] = field(default_factory=dict)

    @property
    def counted(self) -> list[str]:
        """The tasks that are averaged."""
        return [task for task in self.people if task not in self.left_out]

    def read_scores(
        self, metrics: Mapping[str, Mapping[str, float]], task: str
    ) -> dict[str, float]:
        """The scores of `task` on its dev split in percent, with those of a mismatched one."""
        other = (metrics.get("dev_mismatched") or {}).get("accuracy")
        found = dict(metrics.get("dev") or {})
        found |= {} if other is None else {MISMATCHED: other}
        return {name: 100 * value for name, value in found.items() if name in self.people[task]}

    def score(self, task: str, values: Mapping[str, float]) -> float | None:
        """The mean of the task's metrics; None if one is missing."""
        names = self.people[task]
        return average([values.get(name) for name in names])

    def average_scores(self, scores: Scores) -> float | None:
        """The plain mean over all counted tasks; None if one is missing."""
        return average([self.score(task, scores.get(task, {})) for task in self.counted])


def average(values: Sequence[float | None]) -> float | None:
    """The mean; None if one is missing."""
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if len(known) == len(values) else None
