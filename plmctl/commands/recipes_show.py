"""`plmctl recipes show`."""

from __future__ import annotations

from typing import Any

from plmctl.cli.options import Recipe, RecipeSettings
from plmctl.cli.verb import collect_options
from plmctl.config.command import About, Tool


class RecipesShowCommand(Tool):
    """Show a recipe: header, settings, commands and data.

    Only settings that differ from the defaults are shown.
    """

    about = About(
        "recipes show",
        place=160,
        examples=("plmctl recipes show bert", "plmctl recipes show simcse data.path=tokens"),
        takes="pretrain",
        options="json config_dir plugin",
        talks=False,
    )

    @staticmethod
    def perform(name: Recipe, words: RecipeSettings = None, **options: Any) -> None:
        from plmctl.chain import run as chain

        chain.show(name, words or [], collect_options("recipes", **options))
