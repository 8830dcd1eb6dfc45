"""`plmctl generate`."""

from __future__ import annotations

from plmctl.config.command import About, Command, Result
from plmctl.config.uses import Generate


class GenerateCommand(Generate, Command):
    """Continue a prompt, rewrite a text, or fill in masks.

    A decoder continues a prompt, an encoder-decoder rewrites a text, and an encoder fills in the
    masks of a text.
    """

    about = About(
        "generate",
        place=120,
        examples=(
            (
                'plmctl generate checkpoint=runs/gpt/optim.lr=0.001 prompt="Return the"'
                " search=sample search.top_p=0.9 max_new=20"
            ),
            'plmctl generate checkpoint=runs/first prompt="a [MASK] of strings" top=3',
        ),
        bare="checkpoint",
        metavar="RUN",
        options="json print_config config_dir plugin",
        slots="search",
    )

    def perform(self) -> Result:
        """Do what the settings say."""
        from plmctl.use.generate import generate

        return generate(self)
