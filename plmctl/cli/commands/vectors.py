"""`plmctl vectors`."""

from __future__ import annotations

from typing import Any

from plmctl.cli.declare import command
from plmctl.cli.options import Words
from plmctl.cli.start import start


@command(
    "vectors",
    place=107,
    examples=(
        "plmctl vectors method=cbow data.path=README.md width=50 least=2 out=words.safetensors",
        (
            "plmctl vectors method=distilled checkpoint=runs/first data.path=README.md width=16"
            " out=static.vec"
        ),
    ),
    slots="method",
    options="json print_config config_dir plugin",
)
def vectors(words: Words = None, **options: Any) -> None:
    """Make static vectors of words, from a text or out of a model.

    They are written as word2vec, GloVe or fastText write them, and read by every setting that names
    a file of word vectors.
    """
    start("vectors", words, **options)
