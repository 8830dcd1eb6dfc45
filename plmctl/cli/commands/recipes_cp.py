"""`plmctl recipes cp`."""

from __future__ import annotations

from typing import Annotated

import typer

from plmctl.cli.chains import Name, given
from plmctl.cli.declare import command
from plmctl.cli.options import ConfigDir


@command(
    "recipes cp", place=170, examples=("plmctl recipes cp bert", "plmctl recipes cp gpt2 mine.yaml")
)
def cp(
    name: Name,
    dest: Annotated[
        str | None,
        typer.Argument(metavar="[DEST]", help="A file or a folder (default: ./NAME.yaml)."),
    ] = None,
    config_dir: ConfigDir = None,
) -> None:
    """Copy the file of a recipe, to be edited. Nothing is overwritten."""
    with given(config_dir) as provenance:
        from plmctl.chain.show import copy_recipe, find_header

        copy_recipe(name, find_header(name, provenance), dest)
