"""`plmctl generate`."""

from __future__ import annotations

from plmctl.cli.declare import command
from plmctl.cli.options import Json, Plugin, PrintConfig, Words
from plmctl.cli.start import start
from plmctl.run.spec import Provenance


@command(
    "generate",
    place=120,
    examples=(
        (
            'plmctl generate checkpoint=runs/gpt/0 prompt="Return the" search=sample'
            " search.top_p=0.9 max_new=20"
        ),
        'plmctl generate checkpoint=runs/first prompt="a [MASK] of strings" top=3',
    ),
    slots="search",
)
def generate(
    words: Words = None,
    as_json: Json = False,
    print_config: PrintConfig = False,
    plugin: Plugin = None,
) -> None:
    """Continue a prompt, rewrite a text, or fill in masks.

    A decoder continues a prompt, an encoder-decoder rewrites a text, and an encoder fills in the
    masks of a text.
    """
    given = Provenance("generate", json=as_json)
    start(given, words, plugin=plugin, print_config=print_config)
