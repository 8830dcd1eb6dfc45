"""`plmctl pretrain`."""

from __future__ import annotations

from typing import Annotated

import typer

from plmctl.cli.declare import command
from plmctl.cli.options import (
    ConfigDir,
    DryRun,
    Json,
    Multirun,
    Plugin,
    PrintConfig,
    RecipeWords,
    Resume,
)
from plmctl.cli.start import start
from plmctl.run.spec import Provenance

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
    examples=(
        "plmctl pretrain size=tiny train.steps=50 run.dir=runs/first",
        "plmctl pretrain gpt -m size=tiny train.steps=20 optim.lr=1e-3,1e-4 run.dir=runs/gpt",
    ),
    slots="size tokenizer format noise pattern position model objective optim schedule",
    lists=".",
)
def pretrain(
    words: RecipeWords = None,
    print_config: PrintConfig = False,
    dry_run: DryRun = False,
    resume: Resume = False,
    preview: Preview = 0,
    multirun: Multirun = False,
    config_dir: ConfigDir = None,
    plugin: Plugin = None,
    as_json: Json = False,
) -> None:
    """Train a model on text, from a recipe (default: bert)."""
    given = Provenance(
        "pretrain", "bert", dry_run=dry_run, resume=resume, preview=preview, json=as_json
    )
    start(given, words, config_dir, plugin, print_config=print_config, multirun=multirun)
