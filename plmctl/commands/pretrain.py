"""`plmctl pretrain`."""

from __future__ import annotations

from typing import Annotated

import typer

from plmctl.config.command import RECIPE, About, Command, Result
from plmctl.config.schema import Pretrain

Preview = Annotated[
    int,
    typer.Option(
        "--preview",
        metavar="N",
        min=0,
        help="Show N rows before and after noise with their targets, and stop.",
    ),
]


class PretrainCommand(Pretrain, Command):
    """Train a model on text, from a recipe (default: bert)."""

    about = About(
        "pretrain",
        place=50,
        examples=(
            "plmctl pretrain size=tiny train.steps=50 run.dir=runs/first",
            "plmctl pretrain gpt -m size=tiny train.steps=20 optim.lr=1e-3,1e-4 run.dir=runs/gpt",
        ),
        bare=RECIPE,
        metavar="RECIPE",
        recipe="bert",
        options="print_config dry_run resume multirun config_dir plugin json",
        own_options=(("preview", Preview, 0),),
        slots="size tokenizer format noise pattern position model objective optim schedule",
        lists=".",
    )

    def perform(self) -> Result:
        """Do what the settings say."""
        from plmctl.runs.pretraining import pretrain

        return pretrain(self)

    def check(self) -> None:
        """Raise what does not fit, before anything is written."""
        from plmctl.runs.resolve import resolve_pretraining

        resolve_pretraining(self)
