"""`plmctl recipes cp`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from plmctl.cli.former import choose_place
from plmctl.cli.options import Recipe
from plmctl.cli.verb import collect_options
from plmctl.config.command import About, Tool


class RecipesCpCommand(Tool):
    """Copy the file of a recipe, or of a study, to be edited. Nothing is overwritten."""

    about = About(
        "recipes cp",
        place=170,
        examples=("plmctl recipes cp bert", "plmctl recipes cp gpt2 --out mine.yaml"),
        options="config_dir",
        talks=False,
    )

    @staticmethod
    def perform(
        name: Recipe,
        former: Annotated[
            str | None, typer.Argument(metavar="", show_default=False, hidden=True)
        ] = None,
        out: Annotated[
            str | None,
            typer.Option(
                "-o", "--out", metavar="PLACE", help="A file or a folder (default: ./NAME.yaml)."
            ),
        ] = None,
        **options: Any,
    ) -> None:
        from plmctl.chain.show import copy_file

        place = choose_place(f"recipes cp {name}", former, out)
        copy_file(name, collect_options("recipes", **options), place)
