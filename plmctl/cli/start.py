"""How a command with settings starts."""

from __future__ import annotations

import contextlib
import functools
import gc
from collections.abc import Callable, Iterator
from typing import Any

import typer

from plmctl.cli.mistakes import end_at_once
from plmctl.config import command as commands
from plmctl.config.command import Command
from plmctl.config.spec import Provenance, RunSpec
from plmctl.core.errors import UsageError
from plmctl.core.terminal import DETAIL, remark

FORMER = "hydra/sweeper=optuna"  # a sweep refuses it and names the search instead


def start(
    command: type[Command],
    given: Provenance,
    *,
    print_config: bool = False,
    multirun: bool = False,
    **own: Any,
) -> None:
    """Compose the settings and run the command.

    Args:
        command: The class of the command.
        own: Options of the command's own.

    Raises:
        typer.Exit: Always, with the exit code.
    """
    raise typer.Exit(_go(command.read(given, **own), print_config, multirun))


def _go(given: Provenance, print_config: bool, multirun: bool) -> int:
    if given.launched:
        from plmctl.config.launcher import take_launcher

        given = take_launcher(given)
    if multirun or FORMER in given.overrides:
        from plmctl.jobs.sweep import sweep

        if multirun and (given.resume or print_config):
            raise UsageError(
                "-m/--multirun cannot be combined with --resume or --print-config:"
                "\n  fix: name the run.dir or the settings of one job"
            )
        return sweep(given)
    with end_at_once():
        from plmctl.config.saved import print_settings
        from plmctl.runs.deciding import advise, decide
    with advise(given):
        with end_at_once(), _without_collector():
            spec = decide(given)
            remark(f"composed the settings of plmctl {given.command}", DETAIL)
            action = print_settings if print_config else _choose_action(given)
        remark("imported what it needs", DETAIL)
        result = action(spec)
    return result if isinstance(result, int) else 0


def _choose_action(given: Provenance) -> Callable[[RunSpec], commands.Result]:
    """The function that does what a command does, here or where its launcher starts it."""
    if not given.launched or commands.find_command(given.command, given.plugins).starts_jobs:
        return commands.perform
    from plmctl.config.launcher import read_launcher
    from plmctl.jobs.cluster import submit

    launcher = read_launcher(given.launcher)
    if launcher is None:
        return commands.perform
    return functools.partial(submit, launcher=launcher)


@contextlib.contextmanager
def _without_collector() -> Iterator[None]:
    """Import and compose without the garbage collector. Nearly all of these objects stay, and a
    look through them takes a tenth of the time to the first update of a small run.

    The collector does not look through the imports of the first command later, either.
    """
    gc.disable()
    try:
        yield
    finally:
        _freeze_imports()
        gc.enable()


@functools.cache
def _freeze_imports() -> None:
    """Once a process, since what is garbage by then stays, too."""
    gc.freeze()
