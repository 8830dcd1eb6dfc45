"""GLUE's averages, and the human baseline (Wang et al., 2019, arXiv:1804.07461; Nangia and Bowman,
2019, arXiv:1905.10425).
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

# task: {metric: what people reach, in percent}; the task's score is the mean of its metrics (Wang
# et al., 2019, sec. 3)
# Nangia and Bowman, 2019, table 1, and "GLUE Human Baselines" of the leader board
HUMAN: dict[str, dict[str, float]] = {
    "cola": {"matthews": 66.4},
    "sst2": {"accuracy": 97.8},
    "mrpc": {"f1": 86.3, "accuracy": 80.8},
    "stsb": {"pearson": 92.7, "spearman": 92.6},
    "qqp": {"f1": 59.5, "accuracy": 80.4},
    "mnli": {"accuracy": 92.0, "accuracy, mismatched": 92.8},
    "qnli": {"accuracy": 91.2},
    "rte": {"accuracy": 93.6},
    "wnli": {"accuracy": 95.9},
}
# "we exclude the problematic WNLI set" (Devlin et al., 2019, sec. 4.1)
COUNTED = [task for task in HUMAN if task != "wnli"]
# the columns of BERT's table 1 (Devlin et al., 2019): one metric a task, MNLI's two sets apart
BERT = {
    "cola": ["matthews"],
    "sst2": ["accuracy"],
    "mrpc": ["f1"],
    "stsb": ["spearman"],
    "qqp": ["f1"],
    "mnli": ["accuracy", "accuracy, mismatched"],
    "qnli": ["accuracy"],
    "rte": ["accuracy"],
}

Scores = Mapping[str, Mapping[str, float]]  # task: {metric: percent}


def read_scores(metrics: Mapping[str, Mapping[str, float]], task: str) -> dict[str, float]:
    """The scores of `task` on its dev split in percent, with those of MNLI's mismatched set."""
    names = HUMAN[task]
    scores = {
        name: 100 * value for name, value in (metrics.get("dev") or {}).items() if name in names
    }
    other = {
        f"{name}, mismatched": 100 * value
        for name, value in (metrics.get("dev_mismatched") or {}).items()
    }
    return scores | {name: value for name, value in other.items() if name in names}


def score(task: str, values: Mapping[str, float]) -> float | None:
    """The mean of the task's metrics; None if one is missing."""
    return (
        statistics.fmean(values[name] for name in HUMAN[task])
        if set(HUMAN[task]) <= set(values)
        else None
    )


def average_scores(scores: Scores) -> float | None:
    """GLUE's macro-average over the eight tasks without WNLI; None if a task is missing."""
    return _average([score(task, scores.get(task, {})) for task in COUNTED])


def bert_average(scores: Scores) -> float | None:
    """The average of BERT's table 1: nine columns, F1 of MRPC and QQP, Spearman of STS-B."""
    return _average(
        [scores.get(task, {}).get(name) for task, names in BERT.items() for name in names]
    )


def _average(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if len(known) == len(values) else None
