"""What all commands of the program share: options, where errors become messages, and how a command
with settings starts.
"""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from plmctl.core.errors import PlmctlError, UsageError, raise_all
from plmctl.core.terminal import remark, tell
from plmctl.run.spec import Provenance, RunSpec, thaw

USERS_FILES = {
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.EFBIG,
    errno.EISDIR,
    errno.ENOTDIR,
}

Words = Annotated[
    list[str] | None,
    typer.Argument(metavar="[./FILE.yaml] KEY=VALUE", show_default=False, hidden=True),
]
RecipeWords = Annotated[
    list[str] | None, typer.Argument(metavar="RECIPE | KEY=VALUE", show_default=False, hidden=True)
]
ConfigDir = Annotated[
    list[str] | None,
    typer.Option("--config-dir", metavar="DIR", help="Own parts, and own recipes in DIR/recipes."),
]
Plugin = Annotated[
    list[str] | None,
    typer.Option("--plugin", metavar="PACKAGE", help="A package whose classes configs may name."),
]
Json = Annotated[bool, typer.Option("--json", help="Print results as JSON.")]
PrintConfig = Annotated[
    bool, typer.Option("--print-config", help="Print the resolved config and stop.")
]
DryRun = Annotated[
    bool,
    typer.Option("--dry-run", help="Print parameters, compute, memory and time; write nothing."),
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Continue the run in run.dir with its saved config.")
]
Multirun = Annotated[
    bool,
    typer.Option(
        "-m", "--multirun", help="Sweep: key=a,b or choice(), range(), glob(); Hydra's grammar."
    ),
]

Function = TypeVar("Function", bound=Callable[..., None])


@dataclass(frozen=True)
class Command:
    """What a command's file says of it, for `plmctl --help` and the end of its own --help."""

    name: str  # as it is typed: "data check"
    place: int  # in the list of commands
    examples: tuple[str, str]  # what one types; those of all commands run one after the other
    slots: tuple[str, ...] = ()  # whose parts are listed
    lists: str = ""  # a folder of recipes/ that is listed: "." or "studies"
    task: str = ""  # the task whose settings are shown as an example
    only: tuple[str, ...] = ()  # settings of plmctl finetune that this command adds
    # (title, lines) of a section of its own
    section: Callable[[], tuple[str, Sequence[tuple[str, str]]]] | None = None


def command(
    name: str, *, place: int, examples: tuple[str, str], **more: Any
) -> Callable[[Function], Function]:
    """Decorate the function of a command in a file of plmctl/cli: `make_app` finds it."""

    def declare(function: Function) -> Function:
        function.command = Command(name, place, examples, **more)  # type: ignore[attr-defined]
        return function

    return declare


def start(
    given: Provenance,
    words: Sequence[str] | None,
    config_dir: Sequence[str] | None = None,
    plugin: Sequence[str] | None = None,
    *,
    print_config: bool = False,
    multirun: bool = False,
    complete: Callable[[Provenance], Provenance] = lambda given: given,
) -> None:
    """Compose the settings that `words` say, and do what the command does with them.

    Args:
        given: Its recipe is taken where the words name none.
        complete: Adds words for everything that nobody said.
    """
    with reported():
        recipe, overrides = _sorted(words or [], resume=given.resume)
        given = complete(
            replace(
                given,
                recipe=recipe or (None if given.resume else given.recipe),
                overrides=tuple(overrides),
                config_dirs=tuple(config_dir or ()),
                plugins=tuple(plugin or ()),
            )
        )
        see_plugins(given.plugins)
        raise typer.Exit(_go(given, print_config, multirun))


def see_plugins(plugins: Sequence[str]) -> None:
    """Packages named by --plugin are found from the current folder too, and must exist."""
    if plugins and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    for name in plugins:
        if not name.isidentifier() or importlib.util.find_spec(name) is None:
            raise UsageError(
                f"--plugin {name}: there is no such package;"
                " it is looked for here and among the installed ones"
            )


@contextlib.contextmanager
def reported() -> Iterator[None]:
    """A user's mistake is one message and an exit code; a mistake of ours keeps its traceback."""
    try:
        yield
    except PlmctlError as error:
        remark(f"plmctl: {error}")
        raise typer.Exit(error.exit_code) from None
    except KeyboardInterrupt:
        remark("plmctl: stopped")
        raise typer.Exit(130) from None
    except OSError as error:
        if error.errno not in USERS_FILES:
            raise
        remark(f"plmctl: {error.strerror}: {error.filename or 'while writing'}")
        raise typer.Exit(1) from None


def _go(given: Provenance, print_config: bool, multirun: bool) -> int:
    if multirun:
        from plmctl.jobs.sweep import sweep

        if given.resume or print_config:
            raise UsageError(
                "-m/--multirun goes neither with --resume nor with --print-config:"
                " name one job's run.dir or settings"
            )
        return sweep(given)
    if given.resume:
        from plmctl.run.resume import resume_spec

        spec = resume_spec(given)
    else:
        spec = _compose(given)
    if print_config:
        from plmctl.storage.settings_file import to_yaml

        unused = spec.provenance.removed
        head = "".join(f"# not used, its part is not chosen: {line}\n" for line in unused)
        tell(head + to_yaml(thaw(spec)), end="")
        return 0
    from plmctl.run.action import perform

    result = perform(spec)
    return result if isinstance(result, int) else 0


def _compose(given: Provenance) -> RunSpec:
    """The spec of a command; where settings are wrong, all that is wrong with the models and files
    that it starts from is told with them.
    """
    from plmctl.run.compose import attempt

    made = attempt(given)
    if made.errors:
        from plmctl.run.parents import check_parents

        raise_all(check_parents(made.spec, list(made.errors)))
    return made.spec


def _sorted(words: Sequence[str], *, resume: bool) -> tuple[str | None, list[str]]:
    """The recipe (the one word that is no override) and the overrides; with --resume the one
    word may be the run's folder.
    """
    bare = [word for word in words if "=" not in word and not word.startswith("~")]
    overrides = [word for word in words if word not in bare]
    if len(bare) > 1:
        raise UsageError(f"one recipe at a time, and settings as key=value: {' '.join(bare)}")
    if bare and resume and Path(bare[0]).is_dir():
        return None, [*overrides, f"run.dir={bare[0]}"]
    return (bare[0] if bare else None), overrides
