"""`plmctl docs`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from plmctl.cli.completion import suggest_pages
from plmctl.config.command import About, Tool

Page = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[PAGE | FOLDER | WORDS]",
        show_default=False,
        help="A page, the last part of its name, a folder whose pages are listed, or words to"
        " search for.",
        autocompletion=suggest_pages,
    ),
]


class DocsCommand(Tool):
    """Read the documentation in the terminal, without a network."""

    about = About(
        "docs",
        place=205,
        examples=("plmctl docs start/install", "plmctl docs attention heads"),
        options="json",
        talks=False,
    )

    @staticmethod
    def perform(page: Page = None, **options: Any) -> None:
        from plmctl.config.pages import show

        show(" ".join(page or []), as_json=options["json"])
