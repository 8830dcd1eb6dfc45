"""`plmctl recipes cp`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from plmctl.cli.declare import command
from plmctl.cli.options import Recipe
from plmctl.cli.start import collect_options


@command(
    "recipes cp",
    place=170,
    examples=("plmctl recipes cp bert", "plmctl recipes cp gpt2 mine.yaml"),
    options="config_dir",
)
def cp(
    name: Recipe,
    dest: Annotated[
        str | None,
        typer.Argument(metavar="[DEST]", help="A file or a folder (default: ./NAME.yaml)."),
    ] = None,
    **options: Any,
) -> None:
    """Copy the file of a recipe, to be edited. Nothing is overwritten."""
    from plmctl.chain.show import copy_recipe, find_header

    copy_recipe(name, find_header(name, collect_options("recipes", **options)), dest)
