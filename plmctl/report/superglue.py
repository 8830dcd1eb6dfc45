"""SuperGLUE's average, and the human baseline (Wang et al., 2019, arXiv:1905.00537, table 3)."""

from __future__ import annotations

from plmctl.report.benchmark import Benchmark

SUPERGLUE = Benchmark(
    name="SuperGLUE",
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
