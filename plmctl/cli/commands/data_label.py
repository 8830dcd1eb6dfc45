"""`plmctl data label`."""

from __future__ import annotations

from typing import Any

from plmctl.cli.declare import command
from plmctl.cli.options import Words
from plmctl.cli.start import start


@command(
    "data label",
    place=42,
    examples=(
        "plmctl data label checkpoint=runs/sst2 input=README.md threshold=0.5 out=labelled",
        (
            "plmctl data label checkpoint=runs/sst2 input=README.md share=0.5 labelled=false"
            " temperature=2 out=labelled-half"
        ),
    ),
    options="json print_config config_dir plugin",
)
def label(words: Words = None, **options: Any) -> None:
    """Write a training set of texts with the labels that a fine-tuned run gives them.

    For self-training, and for a classifier that imitates several models (PET).
    """
    start("label", words, **options)
