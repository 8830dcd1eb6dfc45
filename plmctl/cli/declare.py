"""What a command's file states about its command."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from plmctl.cli.options import SHARED
from plmctl.core.errors import UsageError
from plmctl.core.terminal import DETAIL, WARN, hear

RECIPE = "recipe"
Function = TypeVar("Function", bound=Callable[..., None])


@dataclass(frozen=True)
class Command:
    """What the file of a command states, for `plmctl --help` and the end of its own help."""

    name: str  # as it is typed: "data check"
    place: int  # in the list of commands
    examples: tuple[str, str]  # what one types; those of all commands run one after the other
    # what a word without "=" is: RECIPE, or the setting that it stands for ("data.path"), which the
    # other words may decide; "": such words have no meaning
    bare: str | Callable[[Sequence[str]], str] = ""
    marks: tuple[tuple[str, str], ...] = ()  # (a word behind the first, the setting it stands for)
    slots: str = ""  # whose parts are listed: "task search"
    lists: str = ""  # a folder of recipes/ that is listed: "." or "studies"
    task: str = ""  # the task whose settings are shown as an example
    talks: bool = True  # tells more than results, which --quiet and --verbose are about
    only: tuple[str, ...] = ()  # settings of plmctl finetune that this command adds
    # (title, lines) of a section of its own
    section: Callable[[], tuple[str, Sequence[tuple[str, str]]]] | None = None

    @property
    def takes_path(self) -> bool:
        """Whether a word without "=" is the value of a setting, all of which are paths."""
        return self.bare not in ("", RECIPE)


def command(
    name: str, *, place: int, examples: tuple[str, str], options: str = "", **more: Any
) -> Callable[[Function], Function]:
    """Declare a function of cli/commands a command of the program.

    `options`: names of options that other commands have, too; the function takes them as keywords.
    """

    def declare(function: Function) -> Function:
        about = Command(name, place, examples, **more)
        shared = [*options.split(), *(("quiet", "verbose") if about.talks else ())]
        signature = _with_options(function, shared)
        heard = _hear_as_asked(function) if about.talks else function
        heard.command = about  # type: ignore[attr-defined]
        heard.__signature__ = signature  # type: ignore[attr-defined]
        return heard

    return declare


def _hear_as_asked(function: Function) -> Function:
    """The function of a command, whose lines are shown as --quiet or --verbose says."""

    @functools.wraps(function)
    def heard(*, quiet: bool, verbose: bool, **given: Any) -> None:
        if quiet and verbose:
            raise UsageError("--quiet and --verbose: one of them\n  fix: leave one out")
        if not (quiet or verbose):
            function(**given)
            return
        with hear(WARN if quiet else DETAIL):
            function(**given)

    return cast(Function, heard)


def _with_options(function: Callable[..., None], options: Sequence[str]) -> inspect.Signature:
    """The signature of a function, with the shared `options` in place of its `**options`."""
    parameters = inspect.signature(function, eval_str=True).parameters.values()
    own = [parameter for parameter in parameters if parameter.kind is not parameter.VAR_KEYWORD]
    shared = [
        inspect.Parameter(option, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for option, (kind, default) in ((option, SHARED[option]) for option in options)
    ]
    return inspect.Signature([*own, *shared])
