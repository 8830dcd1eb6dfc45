"""`plmctl average`, as the program takes it."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from plmctl.cli import legacy
from plmctl.cli.console import Plugin, command


@command(
    "average",
    place=130,
    examples=(
        "plmctl average runs/first --last 2",
        "plmctl average runs/gpt/0 --last 2 --out averaged",
    ),
)
def average(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run directory.")],
    last: Annotated[
        int, typer.Option("--last", metavar="N", help="How many checkpoints, the newest first.")
    ] = 5,
    out: Annotated[
        str | None,
        typer.Option("--out", metavar="DIR", help="A new folder; by default RUN-average."),
    ] = None,
    kept: Annotated[
        bool,
        typer.Option(
            "--kept", help="The average that the run itself kept (distill=self_ensemble)."
        ),
    ] = False,
    plugin: Plugin = None,
) -> None:
    """Average the weights of a run's last checkpoints into one (train.keep_last says how many a
    run keeps).
    """
    folder = os.path.expanduser(run).rstrip("/")
    place = os.path.expanduser(out or f"{folder}-average")
    legacy.run("average", {"run": folder, "out": place, "last": last, "kept": kept}, plugin)
