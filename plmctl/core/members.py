"""The values that the modules of a package and of plug-ins define; no list names the modules."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any

from plmctl.core.importing import import_own


def find_members(
    package: ModuleType, plugins: Sequence[str], wanted: Callable[[object], bool]
) -> list[Any]:
    """The wanted values at the top of all modules, each once, in the order of the modules.

    Args:
        plugins: Packages or modules outside plmctl. The user has named them, so they are imported.
    """
    found: dict[int, Any] = {}
    for home in (package, *map(import_own, plugins)):
        for module in (home, *_list_modules(home)):
            found |= {id(value): value for value in vars(module).values() if wanted(value)}
    return list(found.values())


def _list_modules(package: ModuleType) -> Iterator[ModuleType]:
    for each in pkgutil.iter_modules(getattr(package, "__path__", ())):
        if each.name != "__main__":
            yield import_own(f"{package.__name__}.{each.name}")
