"""`plmctl ablate`."""

from __future__ import annotations

from typing import Annotated

import typer

from plmctl.cli.declare import command
from plmctl.cli.options import ConfigDir, Json, Plugin, PrintConfig
from plmctl.cli.start import start
from plmctl.run.spec import Provenance


@command(
    "ablate",
    place=100,
    examples=(
        "plmctl ablate roberta_masking --dry-run",
        "plmctl ablate roberta_masking budget.steps=2 seeds=[0,1] out=studies/first",
    ),
    lists="studies",
)
def ablate(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="STUDY | KEY=VALUE", show_default=False, hidden=True),
    ] = None,
    print_config: PrintConfig = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print jobs and cost. Run nothing.")
    ] = False,
    config_dir: ConfigDir = None,
    plugin: Plugin = None,
    as_json: Json = False,
) -> None:
    """Compare several settings over several seeds (a study).

    The result is a table of means, differences and verdicts.
    """
    of_launcher = ("hydra/launcher=", "hydra.launcher.")
    launcher = tuple(word for word in words or [] if word.startswith(of_launcher))
    given = Provenance("ablate", dry_run=dry_run, json=as_json, launcher=launcher)
    others = [word for word in words or [] if word not in launcher]
    start(given, others, config_dir, plugin, print_config=print_config)
