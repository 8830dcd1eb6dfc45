"""`plmctl generate`."""

from __future__ import annotations

from typing import Any

from plmctl.cli.declare import command
from plmctl.cli.options import RunWords
from plmctl.cli.start import start


@command(
    "generate",
    place=120,
    bare="checkpoint",
    examples=(
        (
            'plmctl generate checkpoint=runs/gpt/optim.lr=0.001 prompt="Return the" search=sample'
            " search.top_p=0.9 max_new=20"
        ),
        'plmctl generate checkpoint=runs/first prompt="a [MASK] of strings" top=3',
    ),
    slots="search",
    options="json print_config config_dir plugin",
)
def generate(words: RunWords = None, **options: Any) -> None:
    """Continue a prompt, rewrite a text, or fill in masks.

    A decoder continues a prompt, an encoder-decoder rewrites a text, and an encoder fills in the
    masks of a text.
    """
    start("generate", words, **options)
