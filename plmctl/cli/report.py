"""`plmctl report`, as the program takes it."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from plmctl.cli.console import Plugin, command
from plmctl.cli.legacy import run
from plmctl.report import options


@command(
    "report",
    place=140,
    examples=(
        "plmctl report runs/first runs/sst2 --out compared.md",
        "plmctl report studies/first --out study.html",
    ),
)
def report(
    runs: Annotated[
        list[str],
        typer.Argument(metavar="RUN... | STUDY", help="Run directories, or a study's folder."),
    ],
    out: options.Out = "report.html",
    markdown: options.Markdown = False,
    attention: options.Heads = None,
    sentence: options.Sentences = None,
    probe: options.Probes = None,
    card: options.Card = None,
    fact: options.Facts = None,
    plugin: Plugin = None,
) -> None:
    """Write one page, readable offline, on one or several runs, or on a study."""
    wishes = {
        "heads": attention,
        "sentences": sentence or [],
        "probes": probe or [],
        "card": card,
        "facts": fact or [],
    }
    folders = [os.path.expanduser(folder) for folder in runs]
    settings = {"runs": folders, "out": os.path.expanduser(out), "markdown": markdown, **wishes}
    run("report", settings, plugin)
