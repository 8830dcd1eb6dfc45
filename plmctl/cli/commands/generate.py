"""`plmctl generate`, as the program takes it."""

from __future__ import annotations

from plmctl.cli.console import Json, Plugin, PrintConfig, Words, command, start
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
    slots=("search",),
)
def generate(
    words: Words = None,
    as_json: Json = False,
    print_config: PrintConfig = False,
    plugin: Plugin = None,
) -> None:
    """Let a model write: what follows a prompt, or what a source becomes; an encoder fills the
    masks of a text.
    """
    given = Provenance("generate", json=as_json)
    start(given, words, plugin=plugin, print_config=print_config)
