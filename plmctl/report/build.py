"""A report: every panel on one page, in the order that they state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from plmctl.core.members import find_members
from plmctl.report import panels, study_panels
from plmctl.report.page import Block, Heading, write_html, write_page
from plmctl.report.panel import Panel
from plmctl.report.subject import Subject

LONG = 80  # characters of a title


def load_panels(subject: Subject) -> list[Panel[Any]]:
    """The panels of runs or of a study, with those of its plug-ins, in the order of the page."""
    home = study_panels if subject.study else panels
    found = find_members(home, subject.plugins, lambda value: isinstance(value, Panel))
    return sorted(found, key=lambda panel: panel.order)


def make_blocks(subject: Subject) -> list[Block]:
    """The title of the page and the blocks of all panels."""
    names = ", ".join(run.name for run in subject.runs)
    named = names if len(names) <= LONG else f"{len(subject.runs)} runs"
    title = subject.study.title if subject.study else f"Report: {named}"
    return [
        Heading(title, 1),
        *(block for panel in load_panels(subject) for block in panel(subject)),
    ]


def write_report(subject: Subject, out: Path, *, markdown: bool = False) -> list[Path]:
    """Write one self-contained `.html` file; with `markdown`, or if `out` is a `.md` file, also the
    page in Markdown.
    """
    page = make_blocks(subject)
    if markdown or out.suffix == ".md":
        return write_page(page, out.with_suffix(".md"), about=subject.key)
    return [write_html(page, out, about=subject.key)]
