"""`plmctl recipes show`."""

from __future__ import annotations

from plmctl.cli.chains import Name, Words, given
from plmctl.cli.declare import command
from plmctl.cli.options import ConfigDir, Json, Plugin


@command(
    "recipes show",
    place=160,
    examples=("plmctl recipes show bert", "plmctl recipes show simcse data.path=tokens"),
)
def show(
    name: Name,
    words: Words = None,
    as_json: Json = False,
    config_dir: ConfigDir = None,
    plugin: Plugin = None,
) -> None:
    """Show a recipe: header, settings, commands and data.

    Only settings that differ from the defaults are shown.
    """
    with given(config_dir, plugin, json=as_json) as provenance:
        from plmctl.chain import run as chain

        chain.show(name, words or [], provenance)
