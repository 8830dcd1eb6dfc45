"""The runs of the page, and how far each is."""

from __future__ import annotations

from collections import Counter

from plmctl.analysis.runs import find_standing
from plmctl.core.spelling import spell_line
from plmctl.data.held_out import read_held_out
from plmctl.report.card import list_limits
from plmctl.report.page import Block, Paragraph, TableBlock
from plmctl.report.panel import panel_of
from plmctl.report.subject import ReportedRun, Subject
from plmctl.report.text import format_setting

CUT = "{}: the last line of metrics.jsonl is half written and left out."
EMPTY = "{}: no metric has been logged yet."
FEW = "{}: {} are held out, too few for a validation: its losses there are a sample's."
HEAD = ["run", "folder", "what", "state", "how far", "valid"]
FIRST = "Models and predictions are shown of the first {} of {} runs; {} shows another."


@panel_of(Subject, order=0, brief=True)
def panel(subject: Subject) -> list[Block]:
    """How far the runs are, with remarks: one run in a sentence, several are counted."""
    rows, notes = [_describe(run) for run in subject.runs], []
    if len(rows) == 1:
        _, folder, purpose, state, why, known = rows[0]
        notes.append(f"{folder}: {purpose}, {state}, {why}{known and f'; valid: {known}'}.")
    elif rows:
        counts = Counter(row[3] for row in rows)
        states = ", ".join(f"{count} {state}" for state, count in counts.items())
        notes.append(f"{len(rows):,} runs: {states}.")
    for run in subject.runs:
        held = read_held_out(run.folder)
        notes += [FEW.format(run.name, held.describe())] if held and not held.validates else []
        notes += [CUT.format(run.name)] if run.log.cut else []
        notes += [EMPTY.format(run.name)] if not run.log.series else []
    if len(subject.runs) > len(subject.detailed):
        another = spell_line("report", subject.runs[-1].folder)
        notes.append(FIRST.format(len(subject.detailed), len(subject.runs), another))
    return [Paragraph(" ".join(notes))] if notes else []


@panel_of(Subject, order=1.5, title="Runs")
def runs(subject: Subject) -> list[Block]:
    """A table of several runs."""
    rows = [_describe(run) for run in subject.runs]
    return [TableBlock.of_filled(HEAD, rows)] if len(rows) > 1 else []


@panel_of(Subject, order=11.5, title="Limits", brief=True)
def limits(subject: Subject) -> list[Block]:
    """The limits of a single run, as its model card has them."""
    if len(subject.runs) != 1:
        return []
    run = subject.runs[0]
    return [Paragraph(" ".join(list_limits(run.log.config, run.result or {})))]


def _describe(run: ReportedRun) -> list[str]:
    """The cells of a run under `HEAD`."""
    standing, held = find_standing(run.log), read_held_out(run.folder)
    purpose = run.task or f"pretraining, {format_setting(run.log.config.get('recipe'))}"
    known = held.describe() if held else ""
    return [run.name, str(run.folder), purpose, standing.state, standing.why, known]
