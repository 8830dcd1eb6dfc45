"""`plmctl docs`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from plmctl.cli.completion import suggest_pages
from plmctl.config.command import About, Tool

Page = Annotated[
    str,
    typer.Argument(
        metavar="[PAGE | FOLDER]",
        show_default=False,
        help="A page, the last part of its name, or a folder whose pages are listed.",
        autocompletion=suggest_pages,
    ),
]


class DocsCommand(Tool):
    """Read the documentation in the terminal, without a network."""

    about = About(
        "docs",
        place=205,
        examples=("plmctl docs howto", "plmctl docs start/install"),
        options="json",
        talks=False,
    )

    @staticmethod
    def perform(page: Page = "", **options: Any) -> None:
        from plmctl.config.pages import show

        show(page, as_json=options["json"])
