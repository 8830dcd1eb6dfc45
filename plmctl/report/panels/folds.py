"""The result of a cross-validation: a row for each setting of a sweep over folds."""

from __future__ import annotations

from plmctl.core.errors import PlmctlError, list_problems
from plmctl.report.folds import find_folded
from plmctl.report.page import Block, Paragraph, TableBlock
from plmctl.report.panel import panel_of
from plmctl.report.subject import Subject
from plmctl.report.sweeps import read_record
from plmctl.report.text import format_number

ABOUT = (
    "Deviation: over folds, whose training sets share most rows (Bengio and Grandvalet, 2004). All"
    " rows: the score of the predictions of all folds, each by a model that has not seen its row."
)
HEAD = ("setting", "folds", "metric", "mean ± deviation", "all rows", "95% interval", "rows")


@panel_of(Subject, order=1.5, title="Folds", brief=True)
def panel(subject: Subject) -> list[Block]:
    """The mean over the folds of each setting, and the score of all rows together."""
    records = [(run, read_record(run.folder)) for run in subject.runs]
    jobs = [{**record, "dir": str(run.folder)} for run, record in records if record]
    rows, notes = list[list[str]](), list[Block]()
    for setting in find_folded(jobs):
        all_rows = ["", "", ""]
        try:
            pooled = setting.pool(subject.plugins) if setting.complete else None
        except PlmctlError as error:
            pooled = None
            notes.append(Paragraph(f"{setting.name or 'Folds'}: {list_problems(error)}."))
        if pooled:
            ends = " to ".join(map(format_number, pooled.interval or ()))
            all_rows = [format_number(pooled.score), ends, f"{len(pooled.rows):,}{pooled.within}"]
        name, folds = setting.name or "all", setting.spell_folds()
        rows.append([name, folds, setting.metric, setting.spell_mean(), *all_rows])
    return [Paragraph(ABOUT), TableBlock(HEAD, rows), *notes] if rows else []
