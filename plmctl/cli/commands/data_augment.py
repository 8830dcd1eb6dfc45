"""`plmctl data augment`."""

from __future__ import annotations

from typing import Any

from plmctl.cli.declare import command
from plmctl.cli.options import Words
from plmctl.cli.start import start


@command(
    "data augment",
    place=30,
    examples=(
        (
            "plmctl data augment task=sst2 task.path=glue/SST-2 checkpoint=runs/first"
            " copies=2 out=augmented"
        ),
        (
            "plmctl data augment task=sst2 task.path=glue/SST-2 checkpoint=runs/first"
            " rate=0.2 candidates=5 out=augmented-less"
        ),
    ),
    slots="task",
    options="json print_config config_dir plugin",
)
def augment(words: Words = None, **options: Any) -> None:
    """Write a larger training set: a masked language model replaces words.

    Every text is copied, and words of the copies are replaced (TinyBERT's data augmentation).
    """
    start("augment", words, **options)
