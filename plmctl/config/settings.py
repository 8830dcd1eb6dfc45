"""The settings in --help: each with its default and its meaning, the comment behind it in the
schema's file.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from plmctl.config.build import MISSING
from plmctl.config.schema import hints
from plmctl.config.spec import Record
from plmctl.core.spelling import spell
from plmctl.core.values import describe_values


@dataclass(frozen=True)
class Setting:
    """One setting as `plmctl help` shows it."""

    path: str
    default: str  # as a file writes it; empty: it must be given
    kind: str = ""  # the type of its values, in words
    meaning: str = ""
    target: str = ""  # for a part: its class
    hint: Any = field(default=None, compare=False, repr=False)  # the annotation of its values
    owners: tuple[str, ...] = ()  # the commands or parts that take it, where it is shown alone


def settings(kind: type[Record]) -> list[tuple[str, str]]:
    """(key=default, its meaning: the comment in the file of its class) of the plumbing of a
    command, for --help.
    """
    lines = []
    for setting in list_plumbing(kind):
        closed = setting.kind if setting.kind.startswith("one of ") else ""
        needed = "" if setting.default else "must be given"
        words = "; ".join(filter(None, [setting.meaning, closed, needed]))
        lines.append((f"{setting.path}={setting.default}", words))
    return lines


def list_plumbing(kind: type[Record]) -> list[Setting]:
    """The settings of a command that are no part's."""
    return list(_list_group(kind, ""))


def _list_group(group: type[Record], path: str) -> Iterator[Setting]:
    defaults = group()
    for name, hint in hints(group).items():
        value, key = defaults[name], f"{path}{name}"
        if isinstance(value, Record):
            yield from _list_group(type(value), f"{key}.")
        # parts are listed by themselves
        elif hint is not Any and name != "recipe" and key != "run.resume":
            shown = "" if value == MISSING else spell(value)
            yield Setting(key, shown, describe_values(hint), comment_of(group, name), hint=hint)


def comment_of(group: type, name: str) -> str:
    """The help of a field: the comment behind it in its line, or else in lines above it."""
    comments = (_comments(base).get(name) for base in group.__mro__)
    return next(filter(None, comments), "")


@functools.cache
def _comments(group: type) -> dict[str, str]:
    """{field: its comment} of the fields that a class itself lists."""
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
