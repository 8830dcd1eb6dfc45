"""What a command's file states about its command."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

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
    name: str, *, place: int, examples: tuple[str, str], **more: Any
) -> Callable[[Function], Function]:
    """Declare a function of cli/commands a command of the program."""

    def declare(function: Function) -> Function:
        function.command = Command(name, place, examples, **more)  # type: ignore[attr-defined]
        return function

    return declare
