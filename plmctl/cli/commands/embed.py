"""`plmctl embed`."""

from __future__ import annotations

from plmctl.cli.declare import command
from plmctl.cli.options import Plugin, PrintConfig, Words
from plmctl.cli.start import start
from plmctl.run.spec import Provenance


@command(
    "embed",
    place=110,
    examples=(
        "plmctl embed checkpoint=runs/first input=README.md out=vectors.npz",
        (
            "plmctl embed checkpoint=exported input=glue/SST-2/dev.tsv field=sentence"
            " out=means.npz layers=-1 pooling=mean"
        ),
    ),
)
def embed(words: Words = None, print_config: PrintConfig = False, plugin: Plugin = None) -> None:
    """Write contextual embeddings of the lines of a file."""
    given = Provenance("embed")
    start(given, words, plugin=plugin, print_config=print_config)
