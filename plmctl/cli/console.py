"""What all commands of the program share: options, where errors become messages, and how a
command is called.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from plmctl.core.errors import PlmctlError, UsageError
from plmctl.core.terminal import remark
from plmctl.run.compose import Flags

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

ConfigDir = Annotated[
    list[str] | None,
    typer.Option("--config-dir", metavar="DIR", help="Own parts, and own recipes in DIR/recipes."),
]
Plugin = Annotated[
    list[str] | None,
    typer.Option("--plugin", metavar="PACKAGE", help="A package whose classes configs may name."),
]
Json = Annotated[bool, typer.Option("--json", help="Print results as JSON.")]


def command(verb: str, cfg: Any, flags: Flags) -> int:
    """`plmctl.commands.<verb>.run`, whose imports are made now."""
    result = importlib.import_module(f"plmctl.commands.{verb}").run(cfg, flags=flags)
    return result if isinstance(result, int) else 0


def see_plugins(plugins: tuple[str, ...]) -> None:
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
