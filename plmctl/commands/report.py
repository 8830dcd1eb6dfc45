"""`plmctl report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from plmctl.cli import report_options as options
from plmctl.cli.options import Plugin
from plmctl.config.command import About, Tool
from plmctl.core.terminal import tell


class ReportCommand(Tool):
    """Write one HTML page about a run, several runs, a study or a sweep.

    The page needs no network.
    """

    about = About(
        "report",
        place=140,
        examples=(
            "plmctl report runs/first runs/sst2 --out compared.md",
            "plmctl report studies/first --out study.html",
        ),
    )

    @staticmethod
    def perform(
        runs: Annotated[
            list[str],
            typer.Argument(
                metavar="RUN... | STUDY", help="Run directories, or the folder of a study or sweep."
            ),
        ],
        out: options.Out = "report.html",
        markdown: options.Markdown = False,
        brief: options.Brief = False,
        figures: options.Figures = None,
        attention: options.Heads = None,
        sentence: options.Sentences = None,
        heads: options.HeadText = None,
        probe: options.Probes = None,
        sensitivity: options.Bits = None,
        word: options.Words = None,
        keys: options.Units = None,
        card: options.Card = None,
        fact: options.Facts = None,
        plugin: Plugin = None,
    ) -> None:
        from plmctl.report.figures import warn_of_letters
        from plmctl.report.wishes import parse_facts, parse_wishes
        from plmctl.report.write import write

        drawn = Path(figures).expanduser() if figures else None
        files = write(
            [Path(folder).expanduser() for folder in runs],
            _place_page(out),
            markdown=markdown,
            brief=brief,
            figures=drawn,
            wishes=parse_wishes(
                attention,
                sentence or [],
                probe or [],
                sensitivity,
                words=word or [],
                units=keys,
                text=heads,
            ),
            card=Path(card) if card else None,
            facts=parse_facts(fact or []),
            plugins=tuple(plugin or ()),
        )
        tell("\n".join(map(str, files)))
        if drawn:
            warn_of_letters(drawn)  # below the list of files, where a reader looks last


def _place_page(out: str) -> Path:
    """The file of the page: report.html of an existing folder, or of a name that ends with /."""
    place = Path(out).expanduser()
    return place / "report.html" if out.endswith("/") or place.is_dir() else place
