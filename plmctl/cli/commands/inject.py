"""`plmctl inject`."""

from __future__ import annotations

from typing import Any

from plmctl.cli.declare import command
from plmctl.cli.options import RunWords
from plmctl.cli.start import start


@command(
    "inject",
    place=105,
    bare="checkpoint",
    examples=(
        "plmctl inject checkpoint=runs/first word_vectors=pieces words=rare-words out=with-words",
        (
            "plmctl inject checkpoint=runs/first word_vectors=one_token words=rare-words"
            " word_vectors.steps=10 form=replace out=one-token"
        ),
    ),
    slots="word_vectors",
    options="json print_config config_dir plugin",
)
def inject(words: RunWords = None, **options: Any) -> None:
    """Give a model tokens of whole words, with vectors from elsewhere.

    The new model puts them beside or in place of these words in every text that it reads.
    """
    start("inject", words, **options)
