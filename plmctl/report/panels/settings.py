"""All settings of every run, folded; of many runs only those of the first (the panel of
differences shows the others).
"""

from __future__ import annotations

from plmctl.analysis.runs import CONFIG
from plmctl.report.page import Block, Code, Folded
from plmctl.report.panel import panel_of
from plmctl.report.subject import Subject
from plmctl.storage.reading import read_text

FEW = 8


@panel_of(Subject, order=90, title="All settings")
def panel(subject: Subject) -> list[Block]:
    """For each run a folded block with its overrides and its config."""
    blocks: list[Block] = []
    for run in subject.runs[: FEW if len(subject.runs) <= FEW else 1]:
        file = run.folder / CONFIG
        if file.is_file():
            given = run.folder / "overrides.txt"
            words = read_text(given).strip() if given.is_file() else ""
            inner: list[Block] = [*([Code(words)] if words else []), Code(read_text(file).rstrip())]
            blocks.append(Folded(f"All settings of {run.name}", inner))
    return blocks
