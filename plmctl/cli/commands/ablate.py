"""`plmctl ablate`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from plmctl.cli.declare import RECIPE, command
from plmctl.cli.options import StudyWords
from plmctl.cli.start import start


@command(
    "ablate",
    place=100,
    bare=RECIPE,
    marks=(("published", "scale=published"),),
    examples=(
        "plmctl ablate gpt_lstm --dry-run",
        "plmctl ablate gpt_lstm budget.steps=2 seeds=[0,1] out=studies/first",
    ),
    lists="studies",
    options="print_config config_dir plugin json",
)
def ablate(
    words: StudyWords = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print jobs and cost. Run nothing.")
    ] = False,
    **options: Any,
) -> None:
    """Compare several settings over several seeds (a study).

    The result is a table of means, differences and verdicts. The word `published` behind the name
    takes the study at the size of its paper: plmctl ablate bert_sizes published --dry-run.
    """
    of_launcher = ("hydra/launcher=", "hydra.launcher.")
    launcher = tuple(word for word in words or [] if word.startswith(of_launcher))
    others = [word for word in words or [] if word not in launcher]
    start("ablate", others, launcher=launcher, dry_run=dry_run, **options)
