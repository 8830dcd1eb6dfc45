"""GLUE's averages, and the human baseline (Wang et al., 2019, arXiv:1804.07461; Nangia and Bowman,
2019, arXiv:1905.10425).
"""

from __future__ import annotations

from plmctl.report.benchmark import MISMATCHED, Benchmark, Scores, average

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
