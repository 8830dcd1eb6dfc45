"""`plmctl recipes`: the list of systems, one of them in detail, its file to be edited, and its
whole chain in one command.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from plmctl.chain.show import copy_recipe, find_header, show_list, show_recipe
from plmctl.core.errors import UsageError
from plmctl.core.terminal import tell
from plmctl.run.compose import Flags

if TYPE_CHECKING:
    from omegaconf import DictConfig

OUT = "chains"  # where chains are, without out=


def run(cfg: DictConfig, *, flags: Flags) -> int:
    """What `cfg.action` says: ls, show, cp or run."""
    if cfg.action == "ls":
        show_list(flags, of_studies=cfg.studies)
        return 0
    name: str = cfg.name
    found = find_header(name, flags)
    if cfg.action == "cp":
        copy_recipe(name, found, cfg.dest)
        return 0
    from plmctl.chain.plan import plan

    words, tasks, out = _sort_words(cfg.words, name)
    chain = plan(name, found, words, tasks, flags)
    if cfg.action == "show":
        show_recipe(shlex.join([name, *cfg.words]), found, name, chain.lines(out), flags)
        return 0
    if flags.dry_run:
        tell("\n".join(chain.lines(out)))
        return 0
    from plmctl.chain.run import run_and_show

    return run_and_show(chain, out, [name, *cfg.words], flags)


def _sort_words(words: Sequence[str], recipe: str) -> tuple[list[str], dict[str, str] | None, Path]:
    """(settings of steps, tasks by name or None, the folder) that a command line says."""
    kept: list[str] = []
    tasks: dict[str, str] | None = None
    out = Path(OUT, Path(recipe).stem)
    for word in words:
        key, equals, value = word.partition("=")
        if not equals and not word.startswith("~"):
            raise UsageError(f"'{word}': settings are key=value; one recipe at a time")
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
