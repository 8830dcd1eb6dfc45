"""Plug-ins: packages outside plmctl that a config names, imported only where `--plugin` (or
`plugins=`) confirms it.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from plmctl.config.walks import targets_in
from plmctl.core.errors import UsageError

OWN = "plmctl"


class Unconfirmed(UsageError):
    """`of` is made with plug-ins that nobody has confirmed."""

    def __init__(self, of: object, names: Sequence[str], fix: str = "", line: str = "") -> None:
        self.of, self.names = of, names
        what = f"the plug-in{'s' * (len(names) > 1)} {', '.join(names)}, code outside plmctl"
        super().__init__(
            f"{of} is made with {what}: add {fix or option(names).strip()} if you trust it"
            + (f"\n  fix: {line}" if line else "")
        )

    def for_python(self) -> Unconfirmed:
        """The same for who calls plmctl from Python."""
        return Unconfirmed(self.of, self.names, f"plugins={list(self.names)}")


def named(node: Any) -> list[str]:
    """The packages other than plmctl of every `_target_` inside `node`, plain data, each once."""
    names = (target.partition(".")[0] for target in targets_in(node))
    return list(dict.fromkeys(name for name in names if name != OWN and name.isidentifier()))


def recorded(config: Mapping[str, Any]) -> list[str]:
    """The plug-ins of the run of this config: those of its command line, and those with its
    parts.
    """
    given = (config.get("run") or {}).get("plugins") or []
    return list(dict.fromkeys([*map(str, given), *named(config)]))


def confirm(names: Iterable[str], plugins: Sequence[str], *, of: object) -> None:
    """UsageError where `names` has a package that is none of `plugins`: whoever reads `of` decides
    whether its code runs.

    A module of Python itself is no plug-in: nothing of it declares itself a part.
    """
    missing = [name for name in names if name not in plugins]
    if own := [name for name in missing if name in sys.stdlib_module_names]:
        raise UsageError(
            f"{of} names {own[0]}, a module of Python, where a part belongs:"
            " it is damaged, or meant to do harm"
        )
    if missing:
        raise Unconfirmed(of, missing)


def as_words(plugins: Iterable[str], config_dirs: Iterable[str] = ()) -> list[str]:
    """`plugins`, and the folders of --config-dir before them, as words of a command line."""
    folders = [word for folder in config_dirs for word in ("--config-dir", folder)]
    return [*folders, *(word for name in plugins for word in ("--plugin", name))]


def option(plugins: Iterable[str], config_dirs: Iterable[str] = ()) -> str:
    """The same as text that follows a command."""
    return "".join(f" {shlex.quote(word)}" for word in as_words(plugins, config_dirs))
