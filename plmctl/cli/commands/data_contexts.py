"""`plmctl data contexts`."""

from __future__ import annotations

from typing import Any

from plmctl.cli.declare import command
from plmctl.cli.options import PathWords
from plmctl.cli.start import start


@command(
    "data contexts",
    place=35,
    bare="data.path",
    examples=(
        "plmctl data contexts least=50 out=words",
        "plmctl data contexts data.path=README.md words=rare.txt out=rare-words",
    ),
    options="json print_config config_dir plugin",
)
def contexts(words: PathWords = None, **options: Any) -> None:
    """Find the words of a text with their contexts.

    BERTRAM learns from frequent words what the vector of a word is, and gives vectors to rare ones.
    """
    start("contexts", words, **options)
