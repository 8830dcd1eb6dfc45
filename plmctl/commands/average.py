"""`plmctl average`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

import typer

from plmctl.cli.options import Plugin
from plmctl.config.command import About, Tool
from plmctl.core.errors import UsageError
from plmctl.core.terminal import tell

Runs = Annotated[
    list[str], typer.Argument(metavar="RUN", help="A run directory, or several models of one base.")
]
Last = Annotated[
    int | None,
    typer.Option(
        "--last", metavar="N", help="Average the newest N checkpoints of one run (default: 5)."
    ),
]
Out = Annotated[
    str | None,
    typer.Option("-o", "--out", metavar="DIR", help="The new folder (default: RUN-average)."),
]
Own = Annotated[
    bool,
    typer.Option(
        "--kept", help="Take the average that the run itself kept (distill=self_ensemble)."
    ),
]
By = Annotated[
    Literal["linear", "ties", "dare", "dare_ties"],
    typer.Option(
        "--by",
        help="For several runs: the sum of their differences to the base (linear). Or the mean of"
        " large ones of equal sign (ties), or random ones (dare), or random ones of equal sign.",
    ),
]
Weights = Annotated[
    str | None,
    typer.Option(
        "--weights", metavar="W,W", help="The weight of each run (default: 1/n, or 1 for ties)."
    ),
]
Density = Annotated[
    float | None,
    typer.Option(
        "--density",
        metavar="SHARE",
        help="Share of the elements to keep (default: ties 0.2, dare 0.1).",
    ),
]
Base = Annotated[
    str | None,
    typer.Option(
        "--base",
        metavar="MODEL",
        help="The model that several runs began from (default: that of their peft).",
    ),
]
Seed = Annotated[
    int, typer.Option("--seed", metavar="N", help="Seed of the random elements of dare.")
]


class AverageCommand(Tool):
    """Average the last checkpoints of a run, or merge several runs, into a new checkpoint.

    The setting train.keep_last says how many checkpoints a run keeps.
    """

    about = About(
        "average",
        place=130,
        examples=(
            "plmctl average runs/first --last 2",
            "plmctl average runs/gpt/optim.lr=0.001 --last 2 --out averaged",
        ),
    )

    @staticmethod
    def perform(
        run: Runs,
        last: Last = None,
        out: Out = None,
        kept: Own = False,
        by: By = "linear",
        weights: Weights = None,
        density: Density = None,
        base: Base = None,
        seed: Seed = 0,
        plugin: Plugin = None,
    ) -> None:
        from plmctl.artifacts.merging import merge, read_weights
        from plmctl.storage.paths import refuse_file_name
        from plmctl.training.averaging import average as average_checkpoints
        from plmctl.training.averaging import extract_average

        folders = [Path(os.path.expanduser(each)) for each in run]
        folder = folders[0]
        place = Path(os.path.expanduser(out or f"{folder}-average"))
        refuse_file_name(place, "--out")
        if len(folders) > 1:
            if kept or last is not None:
                what = f"{'--kept' if kept else '--last'} is for the checkpoints of one run"
                raise UsageError(f"{what}\n  fix: leave it out, or name one run")
            merge(
                folders,
                place,
                by=by,
                weights=read_weights(weights),
                density=density,
                base=Path(os.path.expanduser(base)) if base else None,
                seed=seed,
                plugins=tuple(plugin or ()),
            )
            return
        if by != "linear" or weights or density is not None or base:
            what = "--by, --weights, --density and --base are for several runs"
            raise UsageError(f"{what}\n  fix: name two runs of one base")
        tell(
            extract_average(folder, place)
            if kept
            else average_checkpoints(folder, place, last=5 if last is None else last)
        )
