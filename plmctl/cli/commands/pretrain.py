"""`plmctl pretrain`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from plmctl.cli.declare import RECIPE, command
from plmctl.cli.options import RecipeWords
from plmctl.cli.start import start

Preview = Annotated[
    int,
    typer.Option(
        "--preview",
        metavar="N",
        min=0,
        help="Show N rows before and after noise with their targets, and stop.",
    ),
]


@command(
    "pretrain",
    place=50,
    bare=RECIPE,
    examples=(
        "plmctl pretrain size=tiny train.steps=50 run.dir=runs/first",
        "plmctl pretrain gpt -m size=tiny train.steps=20 optim.lr=1e-3,1e-4 run.dir=runs/gpt",
    ),
    slots="size tokenizer format noise pattern position model objective optim schedule",
    lists=".",
    options="print_config dry_run resume multirun config_dir plugin json",
)
def pretrain(words: RecipeWords = None, preview: Preview = 0, **options: Any) -> None:
    """Train a model on text, from a recipe (default: bert)."""
    start("pretrain", words, recipe="bert", preview=preview, **options)
