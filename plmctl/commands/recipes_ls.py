"""`plmctl recipes ls`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from plmctl.cli.verb import collect_options
from plmctl.config.command import About, Tool


class RecipesLsCommand(Tool):
    """List all recipes with paper, size, cost and results."""

    about = About(
        "recipes ls",
        place=150,
        examples=("plmctl recipes ls --json", "plmctl recipes ls --studies"),
        options="json config_dir",
        talks=False,
    )

    @staticmethod
    def perform(
        studies: Annotated[
            bool, typer.Option("--studies", help="List the studies of plmctl ablate instead.")
        ] = False,
        **options: Any,
    ) -> None:
        from plmctl.chain.show import show_list

        show_list(collect_options("recipes", **options), of_studies=studies)
