"""Mistakes of users, which become messages."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
from collections.abc import Iterator, Sequence

import typer

from plmctl.core.errors import NotBegun, PlmctlError, UsageError
from plmctl.core.lacks import describe_lack
from plmctl.core.terminal import FAIL, remark
from plmctl.core.unwritten import explain_unwritten


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
    except Exception as error:
        if not (why := describe_lack(error) or explain_unwritten(error)):
            raise
        remark(f"plmctl: {why}", FAIL)
        raise typer.Exit(1) from None


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
