"""`plmctl recipes show`."""

from __future__ import annotations

from typing import Any

from plmctl.cli.declare import command
from plmctl.cli.options import Recipe, RecipeSettings
from plmctl.cli.start import collect_options


@command(
    "recipes show",
    talks=False,
    place=160,
    examples=("plmctl recipes show bert", "plmctl recipes show simcse data.path=tokens"),
    options="json config_dir plugin",
)
def show(name: Recipe, words: RecipeSettings = None, **options: Any) -> None:
    """Show a recipe: header, settings, commands and data.

    Only settings that differ from the defaults are shown.
    """
    from plmctl.chain import run as chain

    chain.show(name, words or [], collect_options("recipes", **options))
