"""`plmctl tokenize`."""

from __future__ import annotations

from plmctl.cli.declare import command
from plmctl.cli.options import ConfigDir, Multirun, Plugin, PrintConfig, Words
from plmctl.cli.start import start
from plmctl.run.spec import Provenance


@command(
    "tokenize",
    place=10,
    examples=(
        "plmctl tokenize tokenizer.vocab_size=4096 out=tokens",
        "plmctl tokenize tokenizer=wordpiece tokenizer.vocab_size=4096 out=tokens-wordpiece",
    ),
    slots="tokenizer",
)
def tokenize(
    words: Words = None,
    print_config: PrintConfig = False,
    multirun: Multirun = False,
    config_dir: ConfigDir = None,
    plugin: Plugin = None,
) -> None:
    """Train a tokenizer, or take one, and write text as tokens."""
    given = Provenance("tokenize")
    start(given, words, config_dir, plugin, print_config=print_config, multirun=multirun)
