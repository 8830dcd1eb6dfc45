"""`plmctl tokenize`."""

from __future__ import annotations

from plmctl.config.command import About, Command, Result
from plmctl.config.schema import Tokenize


class TokenizeCommand(Tokenize, Command):
    """Train a tokenizer, or take one, and write text as tokens."""

    about = About(
        "tokenize",
        place=10,
        examples=(
            "plmctl tokenize tokenizer.vocab_size=4096 out=tokens",
            "plmctl tokenize tokenizer=wordpiece tokenizer.vocab_size=4096 out=tokens-wordpiece",
        ),
        bare="data.path",
        metavar="PATH",
        options="json print_config multirun config_dir plugin",
        slots="tokenizer",
    )

    def perform(self) -> Result:
        """Do what the settings say."""
        from plmctl.inputs.tokenize import tokenize

        return tokenize(self)
