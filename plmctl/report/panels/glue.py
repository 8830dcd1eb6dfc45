"""GLUE: a score for each task, the averages as published, and each task as a share of the human
baseline.
"""

from __future__ import annotations

from plmctl.report.benchmark_panel import show_benchmark
from plmctl.report.glue import GLUE
from plmctl.report.page import Block
from plmctl.report.subject import Subject

ORDER = 41


def panel(subject: Subject) -> list[Block]:
    """A table of tasks and averages, and for each checkpoint a picture of its scores."""
    return show_benchmark(GLUE, subject.runs)
