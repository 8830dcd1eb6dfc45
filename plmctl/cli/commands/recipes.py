"""`plmctl recipes ls | show | cp | run`, as the program takes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from plmctl.cli.console import ConfigDir, Json, Plugin, command, reported, see_plugins
from plmctl.run.spec import Provenance

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="A recipe (plmctl recipes ls), or ./yours.yaml.")
]
Words = Annotated[list[str] | None, typer.Argument(metavar="KEY=VALUE", show_default=False)]


@command(
    "recipes ls", place=150, examples=("plmctl recipes ls --json", "plmctl recipes ls --studies")
)
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
    with _given(config_dir, json=as_json) as given:
        from plmctl.chain.show import show_list

        show_list(given, of_studies=studies)


@command(
    "recipes show",
    place=160,
    examples=("plmctl recipes show bert", "plmctl recipes show simcse data.path=tokens"),
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
    with _given(config_dir, plugin, json=as_json) as given:
        from plmctl.chain import command as chain

        chain.show(name, words or [], given)


@command(
    "recipes cp", place=170, examples=("plmctl recipes cp bert", "plmctl recipes cp gpt2 mine.yaml")
)
def cp(
    name: Name,
    dest: Annotated[
        str | None,
        typer.Argument(metavar="[DEST]", help="A file or folder; by default ./NAME.yaml."),
    ] = None,
    config_dir: ConfigDir = None,
) -> None:
    """Copy a recipe's file, to be edited; nothing is overwritten."""
    with _given(config_dir) as given:
        from plmctl.chain.show import copy_recipe, find_header

        copy_recipe(name, find_header(name, given), dest)


@command(
    "recipes run",
    place=180,
    examples=(
        "plmctl recipes run gpt size=tiny train.steps=20 finetune.train.steps=20 out=chains/first",
        (
            "plmctl recipes run bert size=small data.path=README.md train.minutes=60"
            " tasks.sst2=glue/SST-2 --dry-run"
        ),
    ),
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
    with _given(config_dir, plugin, json=as_json, dry_run=dry_run) as given:
        from plmctl.chain import command as chain

        raise typer.Exit(chain.run(name, words or [], given))


@contextmanager
def _given(
    config_dir: Sequence[str] | None, plugin: Sequence[str] | None = None, **flags: Any
) -> Iterator[Provenance]:
    """What stood on the command line; mistakes inside become messages."""
    given = Provenance(
        "recipes", config_dirs=tuple(config_dir or ()), plugins=tuple(plugin or ()), **flags
    )
    with reported():
        see_plugins(given.plugins)
        yield given
