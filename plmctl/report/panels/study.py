"""The arms of a study, and how far it is."""

from __future__ import annotations

from collections import Counter

from plmctl.core.progress import clock
from plmctl.report.page import Block, Paragraph, TableBlock
from plmctl.report.studies import StudyFolder
from plmctl.report.study_tables import format_budget
from plmctl.report.subject import Subject

ORDER = 0
STATES = ("done", "stopped early", "failed", "still going", "not finished")
NO_TABLE = (
    "There is no table yet: it is made at the end of a start. Below are the jobs so far. To go on:"
    " plmctl ablate with the words that started it; what is finished stays so."
)
OLD = "The table is that of the last start that came to its end; the study was started again since."


def panel(subject: Subject) -> list[Block]:
    """The facts of the study, and the settings of its arms."""
    study = subject.study
    if study is None:
        return []
    counts: Counter[str] = Counter(job.state for job in study.jobs)
    jobs = ", ".join(f"{counts[state]} {state}" for state in STATES if counts[state])
    jobs = jobs or "none started"
    jobs += f"; {before} superseded" if (before := len(study.superseded)) else ""
    seeds = ", ".join(map(str, study.settings.get("seeds") or [])) or "not stated"
    budget = format_budget(study.settings.get("budget") or {})
    facts = f"{study.folder}. Jobs: {jobs}. Seeds: {seeds}. Budget of every pretraining: {budget}."
    if hours := (study.settings.get("budget") or {}).get("hours"):
        facts += f" Time budget of the study: {clock(3600 * hours)}."
    blocks: list[Block] = [Paragraph(facts)]
    if study.table is None:
        blocks.append(Paragraph(NO_TABLE))
    elif study.table_is_old or counts["still going"] or counts["not finished"]:
        blocks.append(Paragraph(OLD))
    return [*blocks, *_arms(study)]


def _arms(study: StudyFolder) -> list[Block]:
    """The settings in which the arms differ."""
    rows = []
    for name, settings in (study.settings.get("arms") or {}).items():
        own = settings if isinstance(settings, dict) else {"overrides": settings}
        words = [str(word) for part in ("overrides", "finetune") for word in own.get(part) or []]
        other = [
            f"{key}={value}" for key, value in own.items() if key not in ("overrides", "finetune")
        ]
        rows.append(
            [
                str(name) + (" (baseline)" if name == study.settings.get("baseline") else ""),
                " ".join([*other, *words]),
            ]
        )
    return [TableBlock(["arm", "its settings"], rows)] if rows else []
