"""What a command's file states about its command."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from plmctl.cli.options import SHARED

Function = TypeVar("Function", bound=Callable[..., None])


@dataclass(frozen=True)
class Command:
    """What the file of a command states, for `plmctl --help` and the end of its own help."""

    name: str  # as it is typed: "data check"
    place: int  # in the list of commands
    examples: tuple[str, str]  # what one types; those of all commands run one after the other
    slots: str = ""  # whose parts are listed: "task search"
    lists: str = ""  # a folder of recipes/ that is listed: "." or "studies"
    task: str = ""  # the task whose settings are shown as an example
    only: tuple[str, ...] = ()  # settings of plmctl finetune that this command adds
    # (title, lines) of a section of its own
    section: Callable[[], tuple[str, Sequence[tuple[str, str]]]] | None = None


def command(
    name: str, *, place: int, examples: tuple[str, str], options: str = "", **more: Any
) -> Callable[[Function], Function]:
    """Declare a function of cli/commands a command of the program.

    `options`: names of options that other commands have, too; the function takes them as keywords.
    """

    def declare(function: Function) -> Function:
        function.command = Command(name, place, examples, **more)  # type: ignore[attr-defined]
        signature = _with_options(function, options.split())
        function.__signature__ = signature  # type: ignore[attr-defined]
        return function

    return declare


def _with_options(function: Callable[..., None], options: Sequence[str]) -> inspect.Signature:
    """The signature of a function, with the shared `options` in place of its `**options`."""
    parameters = inspect.signature(function, eval_str=True).parameters.values()
    own = [parameter for parameter in parameters if parameter.kind is not parameter.VAR_KEYWORD]
    shared = [
        inspect.Parameter(option, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for option, (kind, default) in ((option, SHARED[option]) for option in options)
    ]
    return inspect.Signature([*own, *shared])
