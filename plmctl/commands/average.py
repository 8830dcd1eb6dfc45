"""`plmctl average`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from plmctl.cli.options import Plugin
from plmctl.config.command import About, Tool
from plmctl.core.terminal import tell


class AverageCommand(Tool):
    """Average the last checkpoints of a run into a new one.

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
        run: Annotated[str, typer.Argument(metavar="RUN", help="A run directory.")],
        last: Annotated[
            int, typer.Option("--last", metavar="N", help="Average the newest N checkpoints.")
        ] = 5,
        out: Annotated[
            str | None,
            typer.Option("--out", metavar="DIR", help="The new folder (default: RUN-average)."),
        ] = None,
        kept: Annotated[
            bool,
            typer.Option(
                "--kept", help="Take the average that the run itself kept (distill=self_ensemble)."
            ),
        ] = False,
        plugin: Plugin = None,
    ) -> None:
        from plmctl.storage.paths import refuse_file_name
        from plmctl.training.averaging import average as average_checkpoints
        from plmctl.training.averaging import extract_average

        folder = Path(os.path.expanduser(run))
        place = Path(os.path.expanduser(out or f"{folder}-average"))
        refuse_file_name(place, "--out")
        tell(
            extract_average(folder, place)
            if kept
            else average_checkpoints(folder, place, last=last)
        )
