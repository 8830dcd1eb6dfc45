"""`plmctl data check`, as the program takes it."""

from __future__ import annotations

from typing import Annotated

import typer

from plmctl.cli.console import ConfigDir, Json, Plugin, PrintConfig, command, start
from plmctl.run.spec import Provenance


@command(
    "data check",
    place=20,
    examples=(
        "plmctl data check tokens format=blocks format.max_length=64",
        "plmctl data check README.md tokenizer.path=tokens --out checked.md",
    ),
    slots=("task", "format"),
)
def check(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="PATH | KEY=VALUE", show_default=False, hidden=True),
    ] = None,
    as_json: Json = False,
    out: Annotated[
        str | None, typer.Option("--out", metavar="FILE", help="A page: a .md or a .html file.")
    ] = None,
    print_config: PrintConfig = False,
    config_dir: ConfigDir = None,
    plugin: Plugin = None,
) -> None:
    """Look at text, a token directory, or with task=<name> labelled files, before a long run:
    plain verdicts.
    """
    given = Provenance("data", json=as_json)
    start(given, pathless(words or [], out), config_dir, plugin, print_config=print_config)


def pathless(words: list[str], out: str | None = None) -> list[str]:
    """The words of `data check` with PATH as the setting that it stands for: the task's files,
    or text or tokens.
    """
    slot = "task" if any(word.startswith("task=") for word in words) else "data"
    found = [
        word if "=" in word or word.startswith("~") else f"{slot}.path={word}" for word in words
    ]
    return [*found, *([f"out={out}"] if out else [])]
