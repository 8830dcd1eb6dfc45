"""Errors for missing fields that a part states to give or to need."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from plmctl.core.errors import ConfigError, nearest
from plmctl.core.parts import declared
from plmctl.core.unwritten import place_of


def check_given(
    part: object, stated: Iterable[str], given: Collection[str], *, said: str, method: str
) -> None:
    """Raise ConfigError for the first field that a part states, and that is missing.

    Args:
        part: a noise or a format.
        given: The names of the fields of its rows.
        said: the attribute in which it states them.
        method: The method that makes its rows.
    """
    for field in sorted(set(stated).difference(given)):
        has = f"`{method}` makes rows without it{nearest(field, given)}"
        allowed = f"{place_of(type(part))} states '{field}' in `{said}`, but {has}"
        fix = f"write '{field}' in `{method}`, or leave it out of `{said}`"
        raise ConfigError(declared(type(part)) or said, ..., allowed, fix=fix)


def check_found(part: object, asked: Iterable[str], there: Collection[str]) -> None:
    """Raise ConfigError for the first field that a noise asks for, and that a task does not give.

    Args:
        asked: the fields that it reads.
        there: The names of the fields in the rows of the task.
    """
    for field in sorted(set(asked).difference(there)):
        lack = f"the rows of this task lack it{nearest(field, there)}"
        allowed = f"{place_of(type(part))} reads '{field}', but {lack}"
        fix = f"a noise that does not read it, or write '{field}' in `encode` of the task"
        raise ConfigError(declared(type(part)) or "noise", ..., allowed, fix=fix)
