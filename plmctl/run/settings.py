"""What --help says of settings: each with its default and its meaning, the comment behind it in
the schema's file.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
from collections.abc import Iterator
from typing import Any

from plmctl.core.values import describe_values
from plmctl.run.build import MISSING
from plmctl.run.overrides import spell
from plmctl.run.schema import VERBS, hints
from plmctl.run.spec import Record


def settings(verb: str) -> list[tuple[str, str]]:
    """(key=default, its meaning: the comment beside it in the file of its class) of the plumbing
    of `verb`, for --help.
    """
    return list(_settings(VERBS[verb], ""))


def _settings(group: type[Record], path: str) -> Iterator[tuple[str, str]]:
    defaults = group()
    for name, hint in hints(group).items():
        value, key = defaults[name], f"{path}{name}"
        if isinstance(value, Record):
            yield from _settings(type(value), f"{key}.")
        # parts are listed by themselves
        elif hint is not Any and name != "recipe" and key != "run.resume":
            shown = "" if value == MISSING else spell(value)
            words = [_comment(group, name), describe_values(hint)]
            closed = words[1].startswith("one of ")
            yield f"{key}={shown}", "; ".join(filter(None, words if closed else words[:1]))


def _comment(group: type, name: str) -> str:
    """What stands behind a field of a class in its line, or else in lines of their own above it."""
    comments = (_comments(base).get(name) for base in group.__mro__)
    return next(filter(None, comments), "")


@functools.cache
def _comments(group: type) -> dict[str, str]:
    """{field: the comment beside it} of the fields that a class itself lists."""
    if not dataclasses.is_dataclass(group):
        return {}
    comments: dict[str, str] = {}
    above: list[str] = []
    for line in inspect.getsource(group).splitlines():
        if line.lstrip().startswith("# "):
            above.append(line.lstrip().removeprefix("# "))
            continue
        if field := re.match(r"    (\w+): .*?(?:  # (.*))?$", line):
            comments[field[1]] = field[2] or " ".join(above)
        above = []
    return comments
