"""`plmctl help <part>`, as the program takes it."""

from __future__ import annotations

from typing import Annotated

import typer

from plmctl.cli.console import ConfigDir, Json, Plugin, command, reported, see_plugins
from plmctl.run.compose import Flags

What = Annotated[
    str | None, typer.Argument(metavar="[SLOT | PART | SLOT=PART]", show_default=False)
]


def explain(
    what: What = None, as_json: Json = False, config_dir: ConfigDir = None, plugin: Plugin = None
) -> None:
    """Explain the settings of a part: what each means, its type, its default. Without a name:
    list the slots.
    """
    from omegaconf import OmegaConf

    flags = Flags(
        "help", config_dirs=tuple(config_dir or ()), plugins=tuple(plugin or ()), json=as_json
    )
    with reported():
        see_plugins(flags.plugins)
        raise typer.Exit(command("help", OmegaConf.create({"what": what}), flags))
