"""`plmctl data rewrite`."""

from __future__ import annotations

from typing import Any

from plmctl.cli.declare import command
from plmctl.cli.options import Words
from plmctl.cli.start import start


@command(
    "data rewrite",
    place=40,
    examples=(
        "plmctl data rewrite checkpoint=runs/en-de out=en-de-rewritten",
        (
            "plmctl data rewrite checkpoint=runs/en-de pick=nearest search.width=3"
            " search.count=3 out=en-de-nearest"
        ),
    ),
    slots="task search",
    options="json print_config config_dir plugin",
)
def rewrite(words: Words = None, **options: Any) -> None:
    """Write a training set whose targets a trained model wrote.

    A student that learns from it imitates this model (sequence-level distillation).
    """
    start("rewrite", words, **options)
