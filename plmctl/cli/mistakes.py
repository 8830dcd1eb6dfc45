"""Mistakes of users, which become messages."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shlex
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import typer

from plmctl.core.errors import PlmctlError, UsageError, flatten
from plmctl.core.lacks import describe_lack, exit_code
from plmctl.core.pasted import spell_fix
from plmctl.core.spelling import spell_setting
from plmctl.core.terminal import DETAIL, FAIL, hears, remark
from plmctl.core.unwritten import explain_own_code, explain_unwritten

_OPTIONS = re.compile(r"(?<=\n  fix: )--[a-z][^\n#]*?(?=  #|\n|$)")  # a fix to its comment


@contextlib.contextmanager
def report_mistakes() -> Iterator[None]:
    """Turn a user's mistake into a message and an exit code; other errors keep their traceback."""
    if getattr(signal.getsignal(signal.SIGINT), "__name__", "") == "end_start":
        # the handler of __main__ ends here: from now on the command itself answers to Ctrl-C
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    except PlmctlError as error:
        remark(f"plmctl: {retype(error, sys.argv[1:])}", FAIL)
        raise typer.Exit(error.exit_code) from None
    except KeyboardInterrupt:
        remark("plmctl: stopped", FAIL)
        raise typer.Exit(130) from None
    except Exception as error:
        why = describe_lack(error) or explain_unwritten(error)
        if not why and not hears(DETAIL):  # --verbose shows the whole trace
            why = explain_own_code(error)
        if not why:
            raise
        remark(f"plmctl: {why}", FAIL)
        raise typer.Exit(exit_code(error)) from None
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # an error of tokenizers, a library in Rust
            raise
        reason = str(error).splitlines()[0] if str(error) else "it ended"
        remark(f"plmctl: the tokenizer cannot read this text: {reason}", FAIL)
        raise typer.Exit(3) from None


def retype(error: PlmctlError, words: Sequence[str]) -> str:
    """The message of an error, whose fix corrects a misspelt path of the command line: a setting,
    or the whole line for a path alone. A fix that begins with an option becomes the whole line.

    Args:
        words: The words behind `plmctl`.
    """
    text = str(error)
    for own in flatten(error):
        meant = str(getattr(own, "meant", None) or "")
        for word in words if meant else ():
            key, sign, value = word.partition("=")
            if Path(value if sign else key) == Path(str(getattr(own, "file", ""))):
                again = [meant if each == word else each for each in words]
                fix = spell_setting(key, meant) if sign else shlex.join(["plmctl", *again])
                text = text.replace(f"fix: {spell_fix(f'give {meant}')}", f"fix: {fix}")
    is_line = bool(words) and words[0].isalpha()  # behind another program stand its own words
    return _OPTIONS.sub(lambda found: _merge(words, found[0]), text) if is_line else text


def _merge(words: Sequence[str], fix: str) -> str:
    """The line of these words with the options and settings of a fix. They replace former values,
    or follow at the end.
    """
    again = [*words]
    added = shlex.split(fix)
    while added:
        word = added.pop(0)
        name = word.partition("=")[0]
        valued = word.startswith("-") and "=" not in word and added and not added[0].startswith("-")
        own = [word, added.pop(0)] if valued else [word]
        at = next((n for n, each in enumerate(again) if each.partition("=")[0] == name), len(again))
        former = 1 if at < len(again) and "=" in again[at] else len(own)
        again[at : at + former] = own
    return shlex.join(["plmctl", *again])


@contextlib.contextmanager
def end_at_once() -> Iterator[None]:
    """Let Ctrl-C end the process with the line that goes on. This is for work before anything is
    written, such as imports, in which Python may lose an exception.
    """
    usual = signal.getsignal(signal.SIGINT)
    alone = threading.current_thread() is threading.main_thread()
    again = shlex.join(["plmctl", *sys.argv[1:]])
    line = f"plmctl: stopped before it began. To go on:\n  {again}"

    def end(number: int, frame: object) -> None:
        os.write(2, f"{line}\n".encode())
        os._exit(130)

    changes = alone and usual is signal.default_int_handler
    if changes:
        signal.signal(signal.SIGINT, end)
    try:
        yield
    except KeyboardInterrupt:
        remark(line, FAIL)
        raise typer.Exit(130) from None
    finally:
        if changes:
            signal.signal(signal.SIGINT, usual)


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
