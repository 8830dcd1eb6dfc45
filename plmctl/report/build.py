"""A report: every panel of the folder panels/, in the order that they state, on one page."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Protocol, cast

from plmctl.report import panels
from plmctl.report.page import Block, Heading, write_html, write_page
from plmctl.report.subject import Subject

LONG = 80  # characters of a title


class Panel(Protocol):
    """A module of panels/."""

    ORDER: int  # position on the page

    def panel(self, subject: Subject) -> list[Block]:
        """The blocks on a subject; none if there is nothing to show."""
        ...


def load_panels() -> list[Panel]:
    """All panels, in the order of the page."""
    names = sorted(
        file.stem for file in Path(panels.__path__[0]).glob("*.py") if file.stem != "__init__"
    )
    modules = [importlib.import_module(f"{panels.__name__}.{name}") for name in names]
    return sorted((cast(Panel, module) for module in modules), key=lambda module: module.ORDER)


def make_blocks(subject: Subject) -> list[Block]:
    """The title of the page and the blocks of all panels."""
    names = ", ".join(run.name for run in subject.runs)
    named = names if len(names) <= LONG else f"{len(subject.runs)} runs"
    title = subject.study.title if subject.study else f"Report: {named}"
    return [
        Heading(title, 1),
        *(block for panel in load_panels() for block in panel.panel(subject)),
    ]


def write_report(subject: Subject, out: Path, *, markdown: bool = False) -> list[Path]:
    """Write one self-contained `.html` file; with `markdown`, or if `out` is a `.md` file, also the
    page in Markdown.
    """
    page = make_blocks(subject)
    if markdown or out.suffix == ".md":
        return write_page(page, out.with_suffix(".md"), about=subject.key)
    return [write_html(page, out, about=subject.key)]
