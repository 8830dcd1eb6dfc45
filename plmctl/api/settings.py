"""Settings of Python as the words that the command line has for them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from plmctl.core.errors import UsageError
from plmctl.core.spelling import quote_value, spell

Settings = Mapping[str, Any]  # {"optim.lr": 1e-3, "data.path": Path("notes.txt")}

_PLAIN = re.compile(r"[\w./:@%+~^-]+", re.ASCII)
_MEANT = ("null", "true", "false")  # as values these are None, True and False, and never texts


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


def _spell_setting(key: str, value: Any) -> str:
    if not isinstance(key, str):
        fix = f'{{"train.steps": {value!r}}}'
        raise UsageError(f"{key!r}: the name of a setting is a text\n  fix: as in {fix}")
    if key.startswith("~"):
        return key
    return f"{key}={value}" if key == "prompt" else f"{key}={spell(_quote(value))}"


def _quote(value: Any) -> Any:
    """`value` with its texts in quotes where they would be grammar."""
    if isinstance(value, os.PathLike):
        return _quote(os.fspath(value))
    if isinstance(value, Mapping):
        return {name: _quote(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_quote(inner) for inner in value]
    if isinstance(value, str) and (not _PLAIN.fullmatch(value) or value.lower() in _MEANT):
        return quote_value(value)
    return value
