"""`plmctl help <part>`."""

from __future__ import annotations

import functools
from typing import Annotated, Any

import typer

from plmctl.cli.completion import suggest_topics
from plmctl.cli.options import ConfigDir, Json, Plugin
from plmctl.config.command import About, Tool

What = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[PART | SLOT=PART | SETTING | COMMAND]",
        show_default=False,
        autocompletion=suggest_topics,
    ),
]

Schema = Annotated[
    bool,
    typer.Option(
        "--schema",
        help="Print the JSON Schema of a command's settings and of its YAML files, for editors.",
    ),
]


class HelpCommand(Tool):
    """Explain a part and its settings, one setting, or a command.

    Each setting is shown with its meaning, type and default. A slot lists its parts; without a
    name, all slots are listed. A command is shown as its --help shows it. Other words are looked up
    in the glossary, then in the descriptions of parts and settings.

    With --schema a command stands for its settings: plmctl help pretrain --schema describes those
    of plmctl pretrain, and recipes. The YAML files that plmctl writes name the schema in their
    first line, so that an editor completes keys, values and parts.
    """

    about = About(
        "help",
        place=200,
        examples=("plmctl help span_mask", "plmctl help train.minutes"),
        talks=False,
    )

    @staticmethod
    def perform(
        what: What = None,
        schema: Schema = False,
        as_json: Json = False,
        config_dir: ConfigDir = None,
        plugin: Plugin = None,
    ) -> None:
        from plmctl.cli.app import make_app
        from plmctl.config.help import explain as explain_part
        from plmctl.config.help import is_command
        from plmctl.config.json_schema import show_schema

        words = " ".join(what) if what else None
        own: Any = {"plugins": plugin or (), "config_dirs": config_dir or ()}
        if words and not (schema or as_json) and is_command(words, **own):
            plugins = [word for name in plugin or () for word in ("--plugin", name)]
            make_app()([*words.split(), "--help", *plugins], "plmctl", standalone_mode=False)
            return
        show = show_schema if schema else functools.partial(explain_part, as_json=as_json)
        show(words, **own)
