"""`plmctl data link`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from plmctl.cli.declare import command
from plmctl.cli.start import start


@command(
    "data link",
    place=25,
    examples=(
        "plmctl data link enwiki-pages-articles.xml.bz2 out=linked",
        "plmctl data link README.md dictionary=linked out=linked-text",
    ),
    options="json print_config config_dir plugin",
)
def link(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="PATH | KEY=VALUE", show_default=False, hidden=True),
    ] = None,
    **options: Any,
) -> None:
    """Write text with marked mentions of entities.

    PATH is the export of a wiki, or with dictionary=<names> plain text.
    """
    start("link", pathless(words or []), **options)


def pathless(words: list[str]) -> list[str]:
    """The words of `data link` with PATH as the setting that it stands for."""
    return [word if "=" in word or word.startswith("~") else f"path={word}" for word in words]
