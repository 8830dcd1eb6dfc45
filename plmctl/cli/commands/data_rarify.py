"""`plmctl data rarify`."""

from __future__ import annotations

from typing import Any

from plmctl.cli.declare import command
from plmctl.cli.options import Words
from plmctl.cli.start import start


@command(
    "data rarify",
    place=45,
    examples=(
        "plmctl data rarify task=sst2 task.path=glue/SST-2 substitutes=rare.tsv out=rarified",
        "plmctl data rarify checkpoint=runs/sst2 out=rarified",
    ),
    slots="task",
    options="json print_config config_dir plugin",
)
def rarify(words: Words = None, **options: Any) -> None:
    """Write a test set whose labels depend on rare words.

    The first call splits a labelled set, and the second one, with a baseline that was trained on
    its part, finds the examples in which a frequent word decides, and puts a rare one there.
    """
    start("rarify", words, **options)
