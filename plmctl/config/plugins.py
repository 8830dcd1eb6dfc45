"""Plug-ins: packages outside plmctl that a config names, imported only where `--plugin` (or
`plugins=`) confirms it.
"""

from __future__ import annotations

import ast
import hashlib
import os
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from plmctl.config.walks import scalars_in, targets_in
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


def hash_code(config: Any) -> dict[str, str]:
    """{file: hash} of the plug-ins of a config: all files of a package, or one module with the
    modules next to it that it imports. Nothing is run.
    """
    segments = (
        value.partition(".")[0]
        for path, value in scalars_in(config)
        if path.endswith("segment") and isinstance(value, str) and "." in value.partition(":")[0]
    )
    names = [*named(config), *(name for name in segments if name != OWN and name.isidentifier())]
    return {
        name: hashlib.sha256(file.read_bytes()).hexdigest()[:16]
        for package in dict.fromkeys(names)
        for name, file in _list_sources(package).items()
    }


def _list_sources(package: str) -> dict[str, Path]:
    """{name: file} of the code of a plug-in; none where it is not found."""
    loaded = getattr(sys.modules.get(package), "__spec__", None)
    spec = loaded or PathFinder.find_spec(package, [os.getcwd(), *sys.path])
    if spec is None:
        return {}
    if folders := spec.submodule_search_locations:
        inside = ((Path(each), file) for each in folders for file in Path(each).rglob("*.py"))
        return dict(sorted((f"{package}/{f.relative_to(root)}", f) for root, f in inside))
    found, open_ = dict[str, Path](), [Path(spec.origin or "")]
    while open_:
        file = open_.pop()
        if file.name not in found and file.is_file():
            found[file.name] = file
            open_ += [file.with_name(f"{name}.py") for name in _list_imported(file)]
    return dict(sorted(found.items()))


def _list_imported(file: Path) -> Iterator[str]:
    """The modules that a file imports; none where it cannot be read."""
    try:
        nodes = list(ast.walk(ast.parse(file.read_bytes())))
    except (SyntaxError, ValueError):
        return
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (each.name.partition(".")[0] for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


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
