"""Settings of Python as the words that the command line has for them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from plmctl.config.build import refuse_value
from plmctl.core.errors import UsageError
from plmctl.core.spelling import is_literal, spell
from plmctl.core.values import fit

Settings = Mapping[str, Any]  # {"optim.lr": 1e-3, "data.path": Path("notes.txt")}


def to_words(settings: Settings | None) -> tuple[str, ...]:
    """`key=value` of every setting, as `plmctl <command>` takes it."""
    if isinstance(settings, str) or not isinstance(settings or {}, Mapping):
        fix = '{"train.steps": 50, "data.path": "notes.txt"}'
        raise UsageError(f"settings are a dict, not {settings!r}\n  fix: {fix}")
    return tuple(_spell_setting(key, value) for key, value in (settings or {}).items())


def check_path(name: str, value: object) -> None:
    """UsageError for an argument `name` that must be a path and is none."""
    if not isinstance(value, str | os.PathLike):
        raise UsageError(f"{name}={value!r}: must be a path, as a text or a Path")


def take_value(name: str, value: object, kind: Any) -> Any:
    """The argument `name` as its annotation wants it; ConfigError for another value."""
    try:
        return _fit_whole(value, kind) if type(value) is int else fit(value, kind)
    except ValueError as error:
        raise refuse_value(name, value, kind, error) from None


@lru_cache(maxsize=64)
def _fit_whole(value: int, kind: Any) -> Any:
    """`fit` of a whole number, which a stream of single texts gives again and again."""
    return fit(value, kind)


def _spell_setting(key: str, value: Any) -> str:
    if not isinstance(key, str):
        fix = f'{{"train.steps": {value!r}}}'
        raise UsageError(f"{key!r}: the name of a setting is a text\n  fix: as in {fix}")
    if key.startswith("~"):
        return key
    number = isinstance(value, str) and re.fullmatch(
        r"[+-]?[\d.]+(e[+-]?\d+)?", value, re.IGNORECASE
    )
    as_typed = is_literal(key) or number  # on a command line a number has no quotes, either
    return f"{key}={value}" if as_typed else f"{key}={spell(value)}"
