"""The runs of the page, and how far each is."""

from __future__ import annotations

from plmctl.analysis.runs import find_standing
from plmctl.core.spelling import spell_line
from plmctl.data.held_out import read_held_out
from plmctl.report.page import Block, Paragraph, TableBlock
from plmctl.report.panel import panel_of
from plmctl.report.subject import Subject
from plmctl.report.text import format_setting

CUT = "{}: the last line of metrics.jsonl is half written and left out."
EMPTY = "{}: no metric has been logged yet."
FEW = "{}: {} are held out, too few for a validation: its losses there are a sample's."
FIRST = "Models and predictions are shown of the first {} of {} runs; {} shows another."


@panel_of(Subject, order=0)
def panel(subject: Subject) -> list[Block]:
    """A table of the runs, with remarks."""
    rows, notes = [], []
    for run in subject.runs:
        standing = find_standing(run.log)
        purpose = run.task or f"pretraining, {format_setting(run.log.config.get('recipe'))}"
        held = read_held_out(run.folder)
        rows.append(
            [
                *(run.name, str(run.folder), purpose, standing.state, standing.why),
                held.describe() if held else "",
            ]
        )
        notes += [FEW.format(run.name, held.describe())] if held and not held.validates else []
        notes += [CUT.format(run.name)] if run.log.cut else []
        notes += [EMPTY.format(run.name)] if not run.log.series else []
    if len(subject.runs) > len(subject.detailed):
        another = spell_line("report", subject.runs[-1].folder)
        notes.append(FIRST.format(len(subject.detailed), len(subject.runs), another))
    head = ["run", "folder", "what", "state", "how far", "valid"]
    if not any(row[-1] for row in rows):
        head, rows = head[:-1], [row[:-1] for row in rows]
    return [TableBlock(head, rows), *([Paragraph(" ".join(notes))] if notes else [])]
