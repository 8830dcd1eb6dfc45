"""`plmctl data polarity`."""

from __future__ import annotations

from typing import Any

from plmctl.cli.declare import command
from plmctl.cli.options import PathWords
from plmctl.cli.start import start


@command(
    "data polarity",
    place=36,
    bare="data.path",
    examples=(
        "plmctl data polarity data.path=README.md lexicon=SentiWordNet_3.0.0.txt out=marked.jsonl",
        (
            "plmctl data polarity data.path=README.md lexicon=SentiWordNet_3.0.0.txt"
            " checkpoint=runs/first out=by-vectors.jsonl"
        ),
    ),
    options="json print_config config_dir plugin",
)
def polarity(words: PathWords = None, **options: Any) -> None:
    """Mark the polarity that words have in their sentence, by the glosses of their senses.

    SentiLARE learns from it which words are positive or negative where they stand.
    """
    start("polarity", words, **options)
