"""A command as a function of Typer: its words and options, read from its class."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

from plmctl.cli.options import SHARED, take_words
from plmctl.cli.start import start
from plmctl.config.command import About, Command, Tool
from plmctl.core.errors import UsageError
from plmctl.core.terminal import DETAIL, WARN, hear

Function = Callable[..., None]


def as_function(kind: type[Command] | type[Tool]) -> Function:
    """The function of a command, with the signature that Typer reads."""
    run = functools.partial(start, kind) if issubclass(kind, Command) else kind.perform

    def function(*, quiet: bool = False, verbose: bool = False, **given: Any) -> None:
        if quiet and verbose:
            raise UsageError("--quiet and --verbose: one of them\n  fix: leave one out")
        if not (quiet or verbose):
            run(**given)
            return
        with hear(WARN if quiet else DETAIL):
            run(**given)

    function.__doc__ = kind.__doc__
    function.kind = kind  # type: ignore[attr-defined]
    signature = inspect.Signature(list(_list_parameters(kind)))
    function.__signature__ = signature  # type: ignore[attr-defined]
    return function


def _list_parameters(kind: type[Command] | type[Tool]) -> Iterable[inspect.Parameter]:
    """The words and own options of a command, followed by the common options."""
    about: About = kind.about
    if issubclass(kind, Command):
        yield _keyword("words", take_words(about.metavar), None)
        for name, annotation, default in about.own_options:
            yield _keyword(name, annotation, default)
    else:
        own = inspect.signature(kind.perform, eval_str=True).parameters.values()
        for each in own:
            if each.kind is not each.VAR_KEYWORD:
                yield each.replace(kind=each.KEYWORD_ONLY)
    for name in (*about.options.split(), *(("quiet", "verbose") if about.talks else ())):
        annotation, default = SHARED[name]
        yield _keyword(name, annotation, default)


def _keyword(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )
