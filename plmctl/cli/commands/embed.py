"""`plmctl embed`."""

from __future__ import annotations

from typing import Any

from plmctl.cli.declare import command
from plmctl.cli.options import RunWords
from plmctl.cli.start import start


@command(
    "embed",
    place=110,
    bare="checkpoint",
    examples=(
        "plmctl embed checkpoint=runs/first input=README.md out=vectors.npz",
        (
            "plmctl embed checkpoint=exported input=glue/SST-2/dev.tsv field=sentence"
            " out=means.npz layers=-1 pooling=mean"
        ),
    ),
    options="json print_config config_dir plugin",
)
def embed(words: RunWords = None, **options: Any) -> None:
    """Write contextual embeddings of the lines of a file."""
    start("embed", words, **options)
