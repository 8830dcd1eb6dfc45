"""References in settings, ${size.width} and ${portion:share,total}, and what they stand for."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

from plmctl.config.build import MISSING
from plmctl.config.keys import is_path
from plmctl.config.walks import references_in
from plmctl.core.errors import ConfigError, PlmctlError

PLAIN = "a text without ${...}: what a run saves is worked out already"


class UnresolvedReference(ValueError):
    """A reference to a missing setting; `path` is its dotted key."""

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


def cycle(count: int, *values: object) -> list[object]:
    """`count` values: `values` in turn, again from the first one after the last.

    `${cycle:${size.num_layers},null,64,64}` gives every third layer null; what a run saves is the
    list.
    """
    if not (isinstance(count, int) and count > 0 and values):
        raise ValueError(f"a number of entries above 0 and values, not {(count, *values)!r}")
    return [values[number % len(values)] for number in range(count)]


RESOLVERS = {resolver.__name__: resolver for resolver in (portion, quotient, cycle)}


def register() -> None:
    """Let config files use `RESOLVERS`; again and again is the same as once."""
    from omegaconf import OmegaConf

    for resolver in RESOLVERS.values():
        OmegaConf.register_new_resolver(resolver.__name__, resolver, replace=True)


def work_out(
    settings: Mapping[str, Any], errors: list[PlmctlError] | None = None
) -> dict[str, Any]:
    """Plain settings with the value of everything that they refer to (${size.width}), and with the
    home folder in paths that begin with ~.

    Args:
        settings: Settings as they were composed.
        errors: Receives what is wrong with texts in which `${` stays.

    Raises:
        UnresolvedReference: There is no such value.
    """
    try:
        values = _Usual(dict(settings)).work_out()
    except _Unusual:
        values = _ask_omegaconf(settings)
        if errors is not None:
            errors += [ConfigError(path, text, PLAIN) for path, text in references_in(values)]
    return {str(key): value for key, value in values.items()}


def _ask_omegaconf(settings: Mapping[str, Any]) -> dict[Any, Any]:
    """`work_out` for references of all kinds."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    register()
    try:
        values = OmegaConf.to_container(OmegaConf.create(dict(settings)), resolve=True)
    except OmegaConfBaseException as error:
        path = getattr(error, "full_key", None) or "config"
        raise UnresolvedReference(path, str(error).splitlines()[0]) from error
    return {key: _go_home(node, (str(key),)) for key, node in values.items()}  # type: ignore


class _Unusual(Exception):
    """A case for OmegaConf, which knows all kinds of references and words every mistake."""


class _Usual:
    """The references of nearly all settings: to another setting, and what `RESOLVERS` and
    `oc.select` make of one. OmegaConf makes a node of every setting first, which takes eighty
    times as long.
    """

    _INNERMOST = re.compile(r"\$\{([^${}]*)\}")
    _KEY = re.compile(r"(\.*)(\w+(?:\.\w+)*)")
    _PLAIN = (str, int, float, bool, type(None))

    def __init__(self, settings: dict[Any, Any]) -> None:
        self.settings = settings
        self._open: list[tuple[str, ...]] = []  # the open look-ups: no circles

    def work_out(self) -> dict[Any, Any]:
        """All settings; _Unusual for a reference of another kind, or a wrong one."""
        return {key: self._value(node, (str(key),)) for key, node in self.settings.items()}

    def _value(self, node: Any, keys: tuple[str, ...]) -> Any:
        """The value of the node at these keys."""
        if type(node) is dict:
            return {key: self._value(child, (*keys, str(key))) for key, child in node.items()}
        if type(node) in (list, tuple):
            return [self._value(child, (*keys, str(at))) for at, child in enumerate(node)]
        if type(node) not in self._PLAIN:
            raise _Unusual
        return _go_home(
            self._fill(node, keys) if type(node) is str and "${" in node else node, keys
        )

    def _fill(self, text: str, keys: tuple[str, ...]) -> Any:
        """The value of a text with references, from the innermost to the outermost."""
        while "${" in text:
            inner = self._INNERMOST.search(text)
            if inner is None or "\\" in text:
                raise _Unusual
            value = self._refer(inner[1], keys)
            if inner[0] == text:
                return value
            if type(value) not in (int, float):
                raise _Unusual
            text = f"{text[: inner.start()]}{value}{text[inner.end() :]}"
        return text

    def _refer(self, words: str, keys: tuple[str, ...]) -> Any:
        """The value of one reference, without its braces."""
        name, called, arguments = words.partition(":")
        if not called:
            return self._look_up(words, keys)
        if name == "oc.select" and not arguments.startswith("."):
            return self._look_up(arguments.partition(",")[0], keys, otherwise=words)
        if name not in RESOLVERS:
            raise _Unusual
        value = _call(words)
        return list(value) if isinstance(value, tuple) else value

    def _look_up(self, words: str, keys: tuple[str, ...], otherwise: str = "") -> Any:
        """The value at a dotted key, where dots in front count groups upwards; where there is
        nothing, that of the call `otherwise`.
        """
        key = self._KEY.fullmatch(words)
        if key is None or len(key[1]) > len(keys):
            raise _Unusual
        above = keys[: -len(key[1])] if key[1] else ()
        path = (*above, *key[2].split("."))
        if path in self._open:
            raise _Unusual
        self._open.append(path)
        value = self._follow(path, otherwise)
        self._open.pop()
        return value

    def _follow(self, path: tuple[str, ...], otherwise: str) -> Any:
        """The value at a path of keys."""
        node: Any = self.settings
        for place, step in enumerate(path):
            if isinstance(node, str) and "${" in node:
                node = self._fill(node, path[:place])
            if type(node) is not dict or (step not in node and not otherwise):
                raise _Unusual
            if step not in node:
                return _call(otherwise)
            node = node[step]
        if node == MISSING:
            raise _Unusual
        return self._value(node, path)


def _go_home(node: Any, keys: tuple[str, ...]) -> Any:
    """The node with the home folder in paths that begin with ~, unless a file of that very name is
    here.
    """
    if isinstance(node, dict):
        return {key: _go_home(child, (*keys, str(key))) for key, child in node.items()}
    if not (isinstance(node, str) and node.startswith("~") and is_path(".".join(keys))):
        return node
    return node if os.path.exists(node) else os.path.expanduser(node)


@functools.cache
def _call(words: str) -> Any:
    """The value of a function of plain arguments, a list as a tuple; `oc.select` returns the
    default.
    """
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    register()
    try:
        value = OmegaConf.create({"value": f"${{{words}}}"})["value"]
    except OmegaConfBaseException:
        raise _Unusual from None
    if words.startswith(f"{cycle.__name__}:"):
        return tuple(value)
    if type(value) not in _Usual._PLAIN:
        raise _Unusual
    return value


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
