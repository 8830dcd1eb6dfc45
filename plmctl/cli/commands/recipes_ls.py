"""`plmctl recipes ls`."""

from __future__ import annotations

from typing import Annotated

import typer

from plmctl.cli.chains import given
from plmctl.cli.declare import command
from plmctl.cli.options import ConfigDir, Json


@command(
    "recipes ls", place=150, examples=("plmctl recipes ls --json", "plmctl recipes ls --studies")
)
def ls(
    studies: Annotated[
        bool, typer.Option("--studies", help="List the studies of plmctl ablate instead.")
    ] = False,
    as_json: Json = False,
    config_dir: ConfigDir = None,
) -> None:
    """List all recipes with paper, size, cost and results."""
    with given(config_dir, json=as_json) as provenance:
        from plmctl.chain.show import show_list

        show_list(provenance, of_studies=studies)
