"""References in settings, ${size.width} and ${portion:share,total}, and what they stand for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
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


def register() -> None:
    """Let config files use `portion` and `quotient`; again and again is the same as once."""
    from omegaconf import OmegaConf

    for resolver in (portion, quotient):
        OmegaConf.register_new_resolver(resolver.__name__, resolver, replace=True)


def work_out(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Plain settings with the value of everything that they refer to (${size.width}).

    Raises:
        UnresolvedReference: There is no such value.
    """
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
