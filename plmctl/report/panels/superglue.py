"""SuperGLUE: a score for each task, the average as published, and each task as a share of the human
baseline.
"""

from __future__ import annotations

from plmctl.report.benchmark_panel import show_benchmark
from plmctl.report.page import Block
from plmctl.report.subject import Subject
from plmctl.report.superglue import SUPERGLUE

ORDER = 42


def panel(subject: Subject) -> list[Block]:
    """A table of tasks with their average, and for each checkpoint a picture of its scores."""
    return show_benchmark(SUPERGLUE, subject.runs)
