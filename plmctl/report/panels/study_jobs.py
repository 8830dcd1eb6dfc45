"""The jobs of a study: failed ones with their reasons, and all with their folders."""

from __future__ import annotations

from plmctl.report.page import Block, Folded, Heading, Paragraph, TableBlock
from plmctl.report.studies import JobFolder
from plmctl.report.subject import Subject
from plmctl.report.text import clip, format_number

ORDER = 5
BEFORE = (
    "Jobs of the study as it was before it was edited: they are in no curve, table or cost above."
)


def panel(subject: Subject) -> list[Block]:
    """Tables of failed, open and all jobs."""
    study = subject.study
    if study is None or not (study.jobs or study.superseded):
        return []
    blocks: list[Block] = [Heading("Jobs")]
    not_done = [job for job in study.jobs if job.state != "done"]
    if not_done:
        rows = [
            [job.label, job.state, clip(job.why), f"jobs/{job.folder.name}/log.txt"]
            for job in not_done
        ]
        blocks.append(TableBlock(["not done", "state", "why", "log"], rows))
    missing = (study.table or {}).get("missing") or []
    open_ = [
        [each["label"], each["why"].splitlines()[0], each["cells"]]
        for each in missing
        if each["state"] == "open"
    ]
    if open_:
        blocks += [
            Paragraph("Not started when the table was made:"),
            TableBlock(["job", "why", "cells"], open_),
        ]
    head = ["job", "state", "updates", "last validation loss", "seconds", "folder"]
    blocks += [
        Paragraph("A job's own page: plmctl report <study>/jobs/<job>/run"),
        Folded(
            f"All {len(study.jobs)} jobs", [TableBlock(head, [_row(job) for job in study.jobs])]
        ),
    ]
    if study.superseded:
        before: list[Block] = [
            Paragraph(BEFORE),
            TableBlock(["superseded job", *head[1:]], [_row(job) for job in study.superseded]),
        ]
        blocks.append(Folded(f"{len(study.superseded)} superseded", before))
    return blocks


def _row(job: JobFolder) -> list[str]:
    log = job.log
    loss = log.last("valid/loss")
    return [
        job.label,
        job.state,
        format_number(log.step) if log.series else "",
        format_number(loss),
        format_number(log.last("seconds")),
        f"jobs/{job.folder.name}",
    ]
