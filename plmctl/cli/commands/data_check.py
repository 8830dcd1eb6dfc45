"""`plmctl data check`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from plmctl.cli.declare import command
from plmctl.cli.start import start


@command(
    "data check",
    place=20,
    examples=(
        "plmctl data check tokens format=blocks format.max_length=64",
        "plmctl data check README.md tokenizer.path=tokens --out checked.md",
    ),
    slots="task format",
    options="json print_config config_dir plugin",
)
def check(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="PATH | KEY=VALUE", show_default=False, hidden=True),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option("--out", metavar="FILE", help="Also write a page: a .md or .html file."),
    ] = None,
    **options: Any,
) -> None:
    """Check text, tokens or labelled files before a long run.

    PATH is text or a token directory, or with task=<name> the files of a task.
    """
    start("data", pathless(words or [], out), **options)


def pathless(words: list[str], out: str | None = None) -> list[str]:
    """The words of `data check` with PATH as the setting that it stands for: the task's files,
    or text or tokens.
    """
    slot = "task" if any(word.startswith("task=") for word in words) else "data"
    settings = [
        word if "=" in word or word.startswith("~") else f"{slot}.path={word}" for word in words
    ]
    return [*settings, *([f"out={out}"] if out else [])]
