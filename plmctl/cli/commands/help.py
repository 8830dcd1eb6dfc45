"""`plmctl help <part>`, as the program takes it."""

from __future__ import annotations

from typing import Annotated

import typer

from plmctl.cli.console import ConfigDir, Json, Plugin, command, reported, see_plugins

What = Annotated[
    str | None, typer.Argument(metavar="[SLOT | PART | SLOT=PART]", show_default=False)
]


@command("help", place=200, examples=("plmctl help noise", "plmctl help span_mask"))
def explain(
    what: What = None, as_json: Json = False, config_dir: ConfigDir = None, plugin: Plugin = None
) -> None:
    """Explain the settings of a part: what each means, its type, its default. Without a name:
    list the slots.
    """
    with reported():
        see_plugins(plugin or ())
        from plmctl.run.help import explain as explain_part

        explain_part(what, as_json=as_json, plugins=plugin or (), config_dirs=config_dir or ())
