"""`plmctl tokenize`."""

from __future__ import annotations

from typing import Any

from plmctl.cli.declare import command
from plmctl.cli.options import PathWords
from plmctl.cli.start import start


@command(
    "tokenize",
    place=10,
    bare="data.path",
    examples=(
        "plmctl tokenize tokenizer.vocab_size=4096 out=tokens",
        "plmctl tokenize tokenizer=wordpiece tokenizer.vocab_size=4096 out=tokens-wordpiece",
    ),
    slots="tokenizer",
    options="json print_config multirun config_dir plugin",
)
def tokenize(words: PathWords = None, **options: Any) -> None:
    """Train a tokenizer, or take one, and write text as tokens."""
    start("tokenize", words, **options)
