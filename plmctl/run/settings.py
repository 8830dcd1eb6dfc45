"""What --help says of settings: each with its default and its meaning, the comment behind it in
the schema's file.
"""

from __future__ import annotations

import dataclasses
import re
import sys
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from plmctl.run import schema
from plmctl.run.build import MISSING
from plmctl.run.schema import VERBS


def settings(verb: str) -> list[tuple[str, str]]:
    """(key=default, its meaning: the comment behind it in the file of its class) of the plumbing
    of `verb`, for --help.
    """
    comments: dict[tuple[str, str], str] = {}
    owner = ""
    files = {str(sys.modules[base.__module__].__file__) for base in VERBS[verb].__mro__[:-1]} | {
        str(schema.__file__)
    }
    for line in "".join(
        Path(file).read_text(encoding="utf-8") for file in sorted(files)
    ).splitlines():
        if line.startswith("class "):
            owner = re.split(r"[(:]", line.removeprefix("class "))[0]
        elif found := re.match(r"    (\w+): .*?(?:  # (.*))?$", line):
            comments[owner, found[1]] = found[2] or ""
    return list(_settings(VERBS[verb], "", comments))


def _settings(
    group: type, path: str, comments: Mapping[tuple[str, str], str]
) -> Iterator[tuple[str, str]]:
    made = group()
    for name, hint in typing.get_type_hints(group).items():
        value = getattr(made, name)
        if dataclasses.is_dataclass(hint):
            yield from _settings(typing.cast(type, hint), f"{path}{name}.", comments)
        # parts are listed by themselves
        elif hint is not Any and name != "recipe" and f"{path}{name}" != "run.resume":
            shown = {MISSING: "", "None": "null", "True": "true", "False": "false"}.get(
                str(value), value
            )
            choices = [str(x).lower() for x in _choices(hint)] if _closed(hint) else []
            owner = next(
                base.__name__ for base in group.__mro__ if (base.__name__, name) in comments
            )
            words = [comments[owner, name], f"one of {', '.join(choices)}" if choices else ""]
            yield f"{path}{name}={shown}", "; ".join(filter(None, words))


def _closed(hint: Any) -> bool:
    """Whether nothing but the choices (and null) is allowed."""
    parts = [hint] if typing.get_origin(hint) is Literal else typing.get_args(hint)
    return all(typing.get_origin(part) is Literal or part is type(None) for part in parts)


def _choices(hint: Any) -> list[Any]:
    """What a `Literal`, or a union with one, allows."""
    if typing.get_origin(hint) is Literal:
        return list(typing.get_args(hint))
    return [choice for part in typing.get_args(hint) for choice in _choices(part)]
