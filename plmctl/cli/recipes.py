"""`plmctl recipes ls | show | cp | run`, as the program takes them."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from plmctl.cli.console import ConfigDir, Json, Plugin, command, reported, see_plugins
from plmctl.run.compose import Flags

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="A recipe (plmctl recipes ls), or ./yours.yaml.")
]
Words = Annotated[list[str] | None, typer.Argument(metavar="KEY=VALUE", show_default=False)]


def ls(
    studies: Annotated[
        bool, typer.Option("--studies", help="The studies of plmctl ablate instead.")
    ] = False,
    as_json: Json = False,
    config_dir: ConfigDir = None,
) -> None:
    """List the systems: paper, scale of the file as it stands, parameters, cost, and what was
    reached with it here.
    """
    _recipes(
        {"action": "ls", "studies": studies},
        Flags("recipes", config_dirs=tuple(config_dir or ()), json=as_json),
    )


def show(
    name: Name,
    words: Words = None,
    as_json: Json = False,
    config_dir: ConfigDir = None,
    plugin: Plugin = None,
) -> None:
    """Show one system: its header, the settings that differ from the defaults, the commands of
    its chain, its data.
    """
    flags = Flags(
        "recipes", config_dirs=tuple(config_dir or ()), plugins=tuple(plugin or ()), json=as_json
    )
    _recipes({"action": "show", "name": name, "words": words or []}, flags)


def cp(
    name: Name,
    dest: Annotated[
        str | None,
        typer.Argument(metavar="[DEST]", help="A file or folder; by default ./NAME.yaml."),
    ] = None,
    config_dir: ConfigDir = None,
) -> None:
    """Copy a recipe's file, to be edited; nothing is overwritten."""
    _recipes(
        {"action": "cp", "name": name, "dest": dest},
        Flags("recipes", config_dirs=tuple(config_dir or ())),
    )


def run(
    name: Name,
    words: Words = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the commands; run nothing.")
    ] = False,
    as_json: Json = False,
    config_dir: ConfigDir = None,
    plugin: Plugin = None,
) -> None:
    """Run a recipe's whole chain: tokenize, pretrain (what comes before it, and itself), fine-tune,
    evaluate.

    KEY=VALUE is a setting of the recipe's own pretraining, and of the text for all; out=FOLDER
    (chains/NAME); tasks.sst2=glue/SST-2 a task to fine-tune on (by default labelled text that comes
    with Python; tasks=none: none); finetune.KEY=VALUE a setting of every fine-tuning,
    STEP.KEY=VALUE of one step: sst2.optim.lr=1e-4.

    The same command, started again, passes over what is finished and goes on with what was cut off.
    """
    flags = Flags(
        "recipes",
        config_dirs=tuple(config_dir or ()),
        plugins=tuple(plugin or ()),
        json=as_json,
        dry_run=dry_run,
    )
    _recipes({"action": "run", "name": name, "words": words or []}, flags)


def _recipes(settings: dict[str, Any], flags: Flags) -> None:
    from omegaconf import OmegaConf

    with reported():
        see_plugins(flags.plugins)
        cfg = OmegaConf.create({"words": OmegaConf.create([])} | settings)
        raise typer.Exit(command("recipes", cfg, flags))
