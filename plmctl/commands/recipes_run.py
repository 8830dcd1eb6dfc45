"""`plmctl recipes run`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from plmctl.cli.options import Recipe, RecipeSettings
from plmctl.cli.verb import collect_options
from plmctl.config.command import About, Tool


class RecipesRunCommand(Tool):
    """Run the whole chain of a recipe: tokenize, pretrain, fine-tune, evaluate.

    KEY=VALUE changes a setting of the pretraining. A setting of the text counts for all steps.
    out=FOLDER names the folder (default: chains/NAME). tasks.sst2=glue/SST-2 adds a task to
    fine-tune on. The default is labelled text that comes with Python; tasks=none: no task.
    finetune.KEY=VALUE changes a setting of every fine-tuning, STEP.KEY=VALUE of one step:
    sst2.optim.lr=1e-4.

    Start the same command again to continue: finished steps are kept.
    """

    about = About(
        "recipes run",
        place=180,
        examples=(
            (
                "plmctl recipes run gpt size=tiny train.steps=20 finetune.train.steps=20"
                " out=chains/first"
            ),
            (
                "plmctl recipes run bert size=small data.path=README.md train.minutes=60"
                " tasks.sst2=glue/SST-2 --dry-run"
            ),
        ),
        takes="pretrain",
        options="json config_dir plugin",
    )

    @staticmethod
    def perform(
        name: Recipe,
        words: RecipeSettings = None,
        dry_run: Annotated[
            bool, typer.Option("--dry-run", help="Print the commands. Run nothing.")
        ] = False,
        **options: Any,
    ) -> None:
        from plmctl.chain import run as chain

        raise typer.Exit(
            chain.run(name, words or [], collect_options("recipes", dry_run=dry_run, **options))
        )
