"""`plmctl extend`."""

from __future__ import annotations

from typing import Any

from plmctl.cli.declare import command
from plmctl.cli.options import RunWords
from plmctl.cli.start import start


@command(
    "extend",
    place=106,
    bare="checkpoint",
    examples=(
        "plmctl extend checkpoint=runs/first data.path=README.md tokens=50 least=3 out=extended",
        (
            "plmctl extend checkpoint=runs/first data.path=README.md tokens=50 least=3 rows=random"
            " out=extended-drawn"
        ),
    ),
    options="json print_config config_dir plugin",
)
def extend(words: RunWords = None, **options: Any) -> None:
    """Add tokens of the words of your field to a trained model.

    All old tokens keep their ids, and texts without a new token are read as before.
    """
    start("extend", words, **options)
