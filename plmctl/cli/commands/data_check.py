"""`plmctl data check`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from plmctl.cli.declare import command
from plmctl.cli.former import warn_of_former
from plmctl.cli.options import PathWords
from plmctl.cli.start import start
from plmctl.core.spelling import spell_setting


def choose_setting(words: Sequence[str]) -> str:
    """What a path stands for: the files of a task where one is named."""
    return "task.path" if any(word.startswith("task=") for word in words) else "data.path"


@command(
    "data check",
    place=20,
    bare=choose_setting,
    examples=(
        "plmctl data check tokens format=blocks format.max_length=64",
        "plmctl data check README.md tokenizer.path=tokens out=checked.md",
    ),
    slots="task format",
    options="json print_config config_dir plugin",
)
def check(
    words: PathWords = None,
    out: Annotated[str | None, typer.Option("--out", metavar="FILE", hidden=True)] = None,
    **options: Any,
) -> None:
    """Check text, tokens or labelled files before a long run.

    PATH is text or a token directory, or with task=<name> the files of a task.
    """
    words = words or []
    if out is not None:
        warn_of_former("--out", spell_setting("out", out))
        words = [*words, f"out={out}"]
    start("data", words, **options)
