"""`plmctl data link`."""

from __future__ import annotations

from typing import Any

from plmctl.cli.declare import command
from plmctl.cli.options import PathWords
from plmctl.cli.start import start


@command(
    "data link",
    place=25,
    bare="path",
    examples=(
        "plmctl data link enwiki-pages-articles.xml.bz2 out=linked",
        "plmctl data link README.md dictionary=linked out=linked-text",
    ),
    options="json print_config config_dir plugin",
)
def link(words: PathWords = None, **options: Any) -> None:
    """Write text with marked mentions of entities.

    PATH is the export of a wiki, or with dictionary=<names> plain text.
    """
    start("link", words, **options)
