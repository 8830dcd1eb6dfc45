"""`plmctl help <part>`."""

from __future__ import annotations

from typing import Annotated

import typer

from plmctl.cli.completion import suggest_topics
from plmctl.cli.declare import command
from plmctl.cli.options import ConfigDir, Json, Plugin

What = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[SLOT | PART | SLOT=PART | SETTING | WORDS]",
        show_default=False,
        autocompletion=suggest_topics,
    ),
]


@command(
    "help", place=200, talks=False, examples=("plmctl help span_mask", "plmctl help train.minutes")
)
def explain(
    what: What = None, as_json: Json = False, config_dir: ConfigDir = None, plugin: Plugin = None
) -> None:
    """Explain a part and its settings, or one setting.

    Each setting is shown with its meaning, type and default. A slot lists its parts; without a
    name, all slots are listed. Other words are looked for in the glossary, then in what is said of
    parts and settings.
    """
    from plmctl.config.help import explain as explain_part

    asked = " ".join(what) if what else None
    explain_part(asked, as_json=as_json, plugins=plugin or (), config_dirs=config_dir or ())
