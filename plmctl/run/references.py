"""References in settings, ${size.width} and ${portion:share,total}, and what they stand for."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from plmctl.core.errors import ConfigError, PlmctlError


class UnresolvedReference(ValueError):
    """A setting that refers to what is not there; `path` is its dotted key."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(reason)
        self.path, self.reason = path, reason


def portion(share: float, total: int, multiple: int = 1) -> int:
    """`share * total`, rounded to a multiple of `multiple` and at least that: a third of 768 in
    whole heads.

    `${portion:0.25,${size.width},8}` in a config file; what a run saves is the number.
    """
    if not isinstance(share, int | float):
        raise ValueError(f"a share is a number, not {share!r}")
    return max(1, round(share * total / multiple)) * multiple


def quotient(total: float, part: float) -> int:
    """`total / part`, rounded and at least 1: how many rows have so many tokens.

    `${quotient:2048,${format.max_length}}` in a config file; what a run saves is the number.
    """
    if not all(isinstance(number, int | float) and number > 0 for number in (total, part)):
        raise ValueError(f"two numbers, more than 0, not {total!r} and {part!r}")
    return max(1, round(total / part))


_FUNCTIONS: Mapping[str, Callable[..., int]] = {"portion": portion, "quotient": quotient}
_INNERMOST = re.compile(r"\$\{([^${}]*)\}")  # a reference without another one in it


def register() -> None:
    """Let config files use `portion` and `quotient`; again and again is the same as once."""
    from omegaconf import OmegaConf

    for name, function in _FUNCTIONS.items():
        OmegaConf.register_new_resolver(name, function, replace=True)


def work_out(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Plain settings with the value of everything that they refer to (${size.width}).

    Raises:
        UnresolvedReference: There is no such value.
    """
    try:
        values = {str(key): _fill(value, settings) for key, value in settings.items()}
    except _Unusual:
        values = _ask_omegaconf(settings)
    return values


class _Unusual(Exception):
    """A setting whose value OmegaConf has to find, or to refuse."""


def _fill(value: Any, settings: Mapping[str, Any], depth: int = 8) -> Any:
    """What OmegaConf makes of a value, in a fraction of its time; _Unusual where it refers to
    anything but `${dotted.key}` and what `portion` and `quotient` make of numbers.
    """
    if isinstance(value, dict):
        return {key: _fill(inner, settings, depth) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_fill(inner, settings, depth) for inner in value]
    if value is not None and type(value) not in (str, int, float, bool):
        raise _Unusual
    if not isinstance(value, str) or "${" not in value:
        return value
    if "\\" in value:  # it may take a reference for text
        raise _Unusual
    while (inner := _INNERMOST.search(value)) is not None:
        found = _look_up(inner[1], settings, depth)
        if inner[0] == value:
            return found
        if type(found) is not int:
            raise _Unusual
        value = value[: inner.start()] + str(found) + value[inner.end() :]
    if "${" in value:
        raise _Unusual
    return value


def _look_up(reference: str, settings: Mapping[str, Any], depth: int) -> Any:
    """The value of `size.width`, of `portion:4,128`, or of `oc.select:size.width,64`."""
    name, _, given = reference.partition(":")
    optional = name == "oc.select"
    if optional:
        name, given = given.partition(",")[0], ""
    try:
        if given:
            return _FUNCTIONS[name](*map(_read_number, given.split(",")))
        node: Any = settings
        for key in name.split("."):
            node = node[key]
    except (KeyError, TypeError, ValueError, ArithmeticError):
        raise _Unusual from None
    if not depth or node == "???" or (optional and node is None):
        raise _Unusual
    return _fill(node, settings, depth - 1)


def _read_number(text: str) -> float:
    try:
        return int(text)
    except ValueError:
        return float(text)


def _ask_omegaconf(settings: Mapping[str, Any]) -> dict[str, Any]:
    """`work_out`, whatever the settings hold."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    register()
    try:
        values = OmegaConf.to_container(OmegaConf.create(dict(settings)), resolve=True)
    except OmegaConfBaseException as error:
        path = getattr(error, "full_key", None) or "config"
        raise UnresolvedReference(path, str(error).splitlines()[0]) from error
    return {str(key): value for key, value in dict(values).items()}  # type: ignore[arg-type]


def find_origin(settings: Mapping[str, Any], path: str, depth: int = 8) -> str:
    """The dotted key at which the value of another one is written: with `dropout: ${size.dropout}`
    that is `size.dropout`; itself where nothing on the way is one whole reference.
    """
    node, keys = settings, path.split(".")
    for place, key in enumerate(keys):
        node = node.get(key) if isinstance(node, Mapping) else None  # type: ignore[assignment]
        whole = re.fullmatch(r"\$\{([\w.]+)\}", node) if isinstance(node, str) else None
        if whole and depth:
            return find_origin(settings, ".".join([whole[1], *keys[place + 1 :]]), depth - 1)
    return path


def at_origin(errors: Iterable[PlmctlError], settings: Mapping[str, Any]) -> list[PlmctlError]:
    """The errors, each at the setting that its value is written in: what only refers to a wrong
    value is no second mistake.
    """
    moved: dict[str, PlmctlError] = {}
    for error in errors:
        if isinstance(error, ConfigError):
            origin = find_origin(settings, error.path)
            if origin != error.path:
                fix = error.fix.replace(f"{error.path}=", f"{origin}=")
                error = ConfigError(origin, error.value, error.allowed, fix=fix)
        moved.setdefault(str(error), error)
    return list(moved.values())
