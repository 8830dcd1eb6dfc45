"""One recipe in detail, and its whole chain in one command."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from plmctl.chain.plan import plan
from plmctl.chain.run import run_and_show
from plmctl.chain.show import find_header, show_recipe
from plmctl.core.errors import UsageError
from plmctl.core.terminal import tell
from plmctl.run.spec import Provenance

OUT = "chains"  # where chains are, without out=


def show(name: str, words: Sequence[str], given: Provenance) -> None:
    """Print what a recipe is, and the commands of its chain."""
    found = find_header(name, given)
    kept, tasks, out = _sort_words(words, name)
    chain = plan(name, found, kept, tasks, given)
    show_recipe(shlex.join([name, *words]), found, name, chain.lines(out), given)


def run(name: str, words: Sequence[str], given: Provenance) -> int:
    """Run the chain of a recipe, or with `dry_run` print its commands; returns an exit code."""
    kept, tasks, out = _sort_words(words, name)
    chain = plan(name, find_header(name, given), kept, tasks, given)
    if given.dry_run:
        tell("\n".join(chain.lines(out)))
        return 0
    return run_and_show(chain, out, [name, *words], given)


def _sort_words(words: Sequence[str], recipe: str) -> tuple[list[str], dict[str, str] | None, Path]:
    """(settings of steps, tasks by name or None, the folder) that a command line says."""
    kept: list[str] = []
    tasks: dict[str, str] | None = None
    out = Path(OUT, Path(recipe).stem)
    for word in words:
        key, equals, value = word.partition("=")
        if not equals and not word.startswith("~"):
            raise UsageError(f"'{word}': settings are key=value, and only one recipe may be named")
        if key == "out":
            out = Path(value).expanduser()
        elif key == "tasks" and value == "none":
            tasks = {}
        elif key == "tasks":
            allowed = "tasks.<name>=<folder>, as often as you like, or tasks=none"
            raise UsageError(f"{word}: {allowed}")
        elif key.startswith("tasks."):
            tasks = {**(tasks or {}), key.removeprefix("tasks."): value}
        else:
            kept.append(word)
    return kept, tasks, out
