"""The part that a config names, and the settings that it takes."""

from __future__ import annotations

import importlib
import importlib.machinery
import inspect
import os
import pkgutil
import sys
import sysconfig
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Unpack

from plmctl.core.errors import ConfigError, find_meant, nearest
from plmctl.core.importing import import_own
from plmctl.core.moved import find_moved
from plmctl.core.parts import declared
from plmctl.core.spelling import spell_setting


class Undeclared(ValueError):
    """The named object does not declare itself a part; `own`: it is not plmctl's."""

    def __init__(self, message: str, *, own: bool) -> None:
        super().__init__(message)
        self.own = own


class Unnamed(ValueError):
    """The named part is of no package that may be imported; `package`: its own, or ""."""

    def __init__(self, package: str) -> None:
        self.package = package
        super().__init__("a _target_ names a part of plmctl, or of a package given with --plugin")


class Misspelt(ValueError):
    """A module has no part of this name; `meant`: the target that is spelt alike, or ""."""

    def __init__(self, module: str, name: str, names: Sequence[str]) -> None:
        super().__init__(f"{module} has no '{name}'{nearest(name, names)}")
        meant = find_meant(name, names)
        self.meant = f"{module}.{meant}" if meant else ""


def locate(target: Any, plugins: Sequence[str] = ()) -> Callable[..., Any]:
    """The part named `target`: a class or function at the top level of a module of plmctl or of a
    plug-in.

    A part that moved is found by the name that it had, too. The name is checked before anything is
    imported. ValueError for anything that does not declare itself a part.
    """
    target = find_moved(str(target))
    module, _, name = target.rpartition(".")
    words = [*module.split("."), name]
    if (
        not (words[0] == "plmctl" or words[0] in plugins)
        or not module
        or not all(map(str.isidentifier, words))
    ):
        raise Unnamed(words[0] if all(map(str.isidentifier, words)) and module else "")
    if any(word.startswith("_") for word in words):
        raise ValueError("private names are not parts")
    part = _attribute(module, name)
    home = f"{getattr(part, '__module__', None)}.{getattr(part, '__qualname__', None)}"
    if home != target or not declared(part):
        if declared(part):
            raise ValueError(f"it is defined as {home}")
        raise Undeclared("it does not declare itself a part", own=words[0] != "plmctl")
    return part  # type: ignore[no-any-return]


def find_module(package: str) -> bool:
    """Whether there is a package of this name, outside Python itself; nothing is imported."""
    if not package or package in sys.stdlib_module_names:
        return False
    places = [os.getcwd(), *sys.path]  # --plugin finds those of the current folder, too
    return importlib.machinery.PathFinder.find_spec(package, places) is not None


def is_library(target: str) -> bool:
    """Whether a target is of an installed module that does not mention plmctl, and so has no part;
    nothing is imported.
    """
    package, *inner = target.split(".")[:-1] or [""]
    found = importlib.machinery.PathFinder.find_spec(package) if find_module(package) else None
    file = Path(found.origin) if found and found.origin else Path()
    installed = map(sysconfig.get_path, ("purelib", "platlib"))
    if not any(file.is_relative_to(place) for place in installed):
        return False
    inside = file.parent.joinpath(*inner)
    files = [inside.with_suffix(".py"), inside / "__init__.py"] if inner else [file]
    return not any(
        "plmctl" in each.read_text(encoding="utf-8", errors="replace")
        for each in files
        if each.is_file()
    )


def explain_own_part(slot: str, definition: str) -> str:
    """The words for a file of one's own that makes code of a library a part of a slot."""
    return (
        f'a file own_parts.py makes it one: @part_of("{slot}"), of plmctl.core.parts, above'
        f" {definition}"
    )


def refuse_foreign(
    path: str, name: str, allowed: str, *, slot: str, known: Iterable[str], several: bool = False
) -> ConfigError:
    """The error of a name at `path` that no confirmed package has, with a fix that runs.

    The fix confirms the package, names a file of one's own around a library, or names our part.

    Args:
        path: The setting.
        name: `<module>.<name>`.
        allowed: The allowed values.
        known: The names of plmctl's own parts.
        several: Whether the setting is a list.
    """

    def spell(word: str) -> str:
        return spell_setting(path, [word] if several else word)

    package = name.partition(".")[0]
    if is_library(name):
        made = explain_own_part(slot, f"a definition that calls {name}")
        allowed = f"{package} is a library, whose code is no part; {made}"
        return ConfigError(path, name, allowed, fix=f"--plugin own_parts {spell('own_parts.make')}")
    if find_module(package):
        return ConfigError(path, name, allowed, fix=f"--plugin {package}")
    meant = find_meant(package, known) or next(iter(known))
    return ConfigError(path, name, f"{allowed}; there is no package {package}", fix=spell(meant))


def parameters(part: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """The keyword parameters of a part, with evaluated annotations if their names are known."""
    return _read_parameters(part)


@cache
def takes_any(part: Callable[..., Any]) -> bool:
    """Whether a part takes settings of any name (`torch.nn.Module`, written so, takes none)."""
    if str(getattr(getattr(part, "__init__", None), "__module__", "")).startswith("torch."):
        return False
    found = inspect.signature(part).parameters.values()
    kinds = [each.annotation for each in found if each.kind is each.VAR_KEYWORD]
    return any(not str(kind).startswith("Unpack[") for kind in kinds)


@cache
def _read_parameters(part: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    code = part.__init__ if inspect.isclass(part) else part  # type: ignore[misc]
    scope = getattr(code, "__globals__", vars(importlib.import_module(part.__module__)))
    by_name, passed = {}, dict[str, inspect.Parameter]()
    for name, parameter in inspect.signature(part).parameters.items():
        annotation = _evaluate(parameter.annotation, scope)
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            by_name[name] = parameter.replace(annotation=annotation)
        elif parameter.kind is parameter.VAR_KEYWORD and typing.get_origin(annotation) is Unpack:
            names = typing.get_args(annotation)[0].__annotations__
            passed = {k: v for k, v in _read_below(part).items() if k in names}
    return MappingProxyType({**passed, **by_name})


def _read_below(part: Any) -> Mapping[str, inspect.Parameter]:
    """The parameters of the base class to which a class passes settings on."""
    return _read_parameters(next(base for base in part.__mro__[1:] if "__init__" in vars(base)))


def _attribute(module: str, name: str) -> Any:
    """The object `name` at the top level of `module`; ValueError if it is missing."""
    try:
        loaded = import_own(module)
    except ModuleNotFoundError as error:
        if error.name is None or not (module == error.name or module.startswith(error.name + ".")):
            raise  # the module exists, but something that it imports does not
        raise ValueError(f"there is no module {error.name}{_near_module(error.name)}") from None
    if name not in vars(loaded):
        raise Misspelt(module, name, list(vars(loaded)))
    return vars(loaded)[name]


def _near_module(name: str) -> str:
    """A hint at a module of a similar name."""
    package, _, last = name.rpartition(".")
    folders = getattr(sys.modules.get(package), "__path__", [])
    return nearest(last, (module.name for module in pkgutil.iter_modules(folders)))


def _evaluate(annotation: Any, scope: dict[str, Any]) -> Any:
    """The annotation as an object; Any if it names something imported only for type checkers."""
    if annotation is inspect.Parameter.empty:
        return Any

    def carrier() -> None: ...

    carrier.__annotations__ = {"value": annotation}
    try:
        return typing.get_type_hints(carrier, globalns=scope, include_extras=True)["value"]
    except NameError:
        return Any
