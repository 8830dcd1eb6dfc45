"""Mistakes of users, which become messages."""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import os
import sys
from collections.abc import Iterator, Sequence

import typer

from plmctl.core.errors import NotBegun, PlmctlError, UsageError
from plmctl.core.terminal import FAIL, remark

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

LESS_MEMORY = (
    "a smaller train.micro_batch_size (the same training, in smaller pieces), shorter rows"
    " (format.max_length, task.max_length), or train.checkpoint_activations=true"
)


@contextlib.contextmanager
def report_mistakes(typed: str) -> Iterator[None]:
    """Turn a user's mistake into a message and an exit code; other errors keep their traceback.

    Args:
        typed: The command line.
    """
    try:
        yield
    except PlmctlError as error:
        remark(f"plmctl: {error}", FAIL)
        raise typer.Exit(error.exit_code) from None
    except NotBegun:
        remark(f"plmctl: stopped before it began. To go on:\n  {typed}", FAIL)
        raise typer.Exit(130) from None
    except KeyboardInterrupt:
        remark("plmctl: stopped", FAIL)
        raise typer.Exit(130) from None
    except OSError as error:
        if error.errno not in USERS_FILES:
            raise
        remark(f"plmctl: {error.strerror}: {error.filename or 'while writing'}", FAIL)
        raise typer.Exit(1) from None
    except (MemoryError, RuntimeError) as error:
        if not _is_lack_of_memory(error):
            raise
        remark(f"plmctl: out of memory{_first_line(error)}\n  fix: {LESS_MEMORY}", FAIL)
        raise typer.Exit(1) from None


def _is_lack_of_memory(error: Exception) -> bool:
    """Whether Python or torch had no room; torch is not imported to ask."""
    named = type(error).__name__ == "OutOfMemoryError"
    return isinstance(error, MemoryError) or named or "can't allocate memory" in str(error)


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f": {lines[0]}" if lines else ""


def find_plugins(plugins: Sequence[str]) -> None:
    """Find packages of --plugin in the current folder, too; UsageError for a missing one."""
    if plugins and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    for name in plugins:
        if not name.isidentifier() or importlib.util.find_spec(name) is None:
            raise UsageError(
                f"--plugin {name}: there is no such package"
                " in the current folder or among the installed ones"
                f"\n  fix: export PYTHONPATH=<folder that holds {name}/>, or pip install it"
            )
