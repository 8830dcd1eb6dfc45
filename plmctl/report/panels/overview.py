"""The runs of the page, and how far each is."""

from __future__ import annotations

import shlex

from plmctl.report.page import Block, Paragraph, TableBlock
from plmctl.report.runs import find_standing
from plmctl.report.subject import Subject
from plmctl.report.text import format_setting

ORDER = 0
CUT = "{}: the last line of metrics.jsonl is half written and left out."
EMPTY = "{}: no metric has been logged yet."
FIRST = (
    "Models and predictions are shown of the first {} of {} runs; plmctl report {} shows another."
)


def panel(subject: Subject) -> list[Block]:
    """A table of the runs, with remarks."""
    if not subject.runs:
        return []
    rows, notes = [], []
    for run in subject.runs:
        standing = find_standing(run.log)
        purpose = run.task or f"pretraining, {format_setting(run.log.config.get('recipe'))}"
        rows.append([run.name, str(run.folder), purpose, standing.state, standing.why])
        notes += [CUT.format(run.name)] if run.log.cut else []
        notes += [EMPTY.format(run.name)] if not run.log.series else []
    if len(subject.runs) > len(subject.detailed):
        another = shlex.quote(str(subject.runs[-1].folder))
        notes.append(FIRST.format(len(subject.detailed), len(subject.runs), another))
    return [
        TableBlock(["run", "folder", "what", "state", "how far"], rows),
        *([Paragraph(" ".join(notes))] if notes else []),
    ]
