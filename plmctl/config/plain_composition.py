"""Compositions of part files in plain values, ten times as fast as Hydra's.

Hydra makes a node of every setting; this module merges plain dicts by the same rules. Unusual files
and words raise `Unusual`: Hydra composes them, and words every mistake.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

SELF, GLOBAL, UNSET = "_self_", "_global_", "???"
_NAME = r"[A-Za-z_][\w.-]*"  # the name of an option
_PLACE = r"(?:@(?!_here_|.*_group_)([\w.]+))?"  # the package of a line, but for words of Hydra
_FILE = re.compile(rf"(/?\w+(?:/\w+)*){_PLACE}", re.ASCII)
_ITEM = re.compile(rf"(?:(override) )?(/?[\w/]+){_PLACE}", re.ASCII)
_CHOICE = re.compile(
    rf"([\w/]+(?:@[\w.]+)?)=(?:({_NAME})|\[((?:{_NAME}(?:,{_NAME})*)?)\])", re.ASCII
)
_VALUES = ("true", "false", "null", "nan", "inf")  # no names, as Hydra reads words

Option = str | tuple[str, ...] | None


class Unusual(Exception):
    """A composition that is left to Hydra."""


@dataclass(frozen=True)
class Default:
    """One line of a list of defaults."""

    group: str  # from the root with a / in front; "" for a file of the same group
    option: Option
    package: str | None
    overrides: bool = False


@dataclass(frozen=True)
class PartFile:
    """One file: the package of its settings, the files under it, its settings."""

    package: str | None
    defaults: tuple[Default, ...]
    settings: Mapping[str, Any]


def read_part(settings: Mapping[str, Any], package: str | None) -> PartFile:
    """A file with the settings that were read from it, and the package of its header."""
    own = dict(settings)
    listed = own.pop("defaults", [])
    if not isinstance(listed, list) or "hydra" in own:
        raise Unusual
    if package is not None and not package.startswith(GLOBAL):
        package = f"{GLOBAL}.{package}" if package else GLOBAL
    return PartFile(package, tuple(map(_read_default, listed)), own)


def read_package(text: str) -> str | None:
    """The package that the header of a file states: `# @package noise.token_mask`."""
    for line in filter(str.strip, text.splitlines()):
        if not re.match(r"\s*#\s*@", line):
            break
        mark, *rest = line.strip().lstrip("#").split()
        if mark != "@package" or len(rest) != 1:
            raise Unusual
        return rest[0]
    return None


def read_choices(words: Sequence[str]) -> tuple[dict[str, Option], set[str]]:
    """{slot, or slot@package: its option} and the slots without one, of `slot=option`,
    `slot=[option,option]` and `~slot`.
    """
    choices: dict[str, Option] = {}
    removed: set[str] = set()
    for word in words:
        found = _CHOICE.fullmatch(word)
        if re.fullmatch(r"~[\w/]+", word, re.ASCII):
            removed.add(word[1:])
        elif found is None or any(name.lower() in _VALUES for name in re.split("[=,]", word)[1:]):
            raise Unusual
        elif found[2]:
            choices[found[1]] = found[2]
        else:
            choices[found[1]] = tuple(filter(None, found[3].split(",")))
    return choices, removed


def compose_plainly(
    primary: str, words: Sequence[str], read: Callable[[str], PartFile]
) -> dict[str, Any]:
    """The settings of a primary file with the choices of some words.

    Args:
        words: Choices, as `read_choices` takes them.
        read: Reads the file at a path of groups, `noise/token_mask`.
    """
    tree = _Tree(read, *read_choices(words))
    files = tree.visit(_Node(primary, "", "", "", None), root=True)
    tree.finish(files)
    config: dict[str, Any] = {}
    for file in files:
        settings = read(file.path).settings
        for name in reversed(file.package.split(".") if file.package else []):
            settings = {name: settings}
        _merge(config, settings)
    return config


def copy_plain(value: Any) -> Any:
    """A copy of nested mappings and lists."""
    if type(value) is dict:
        return {key: copy_plain(child) for key, child in value.items()}
    return [copy_plain(child) for child in value] if type(value) is list else value


@dataclass(frozen=True)
class _Node:
    """A file in the tree of defaults."""

    path: str
    group: str  # the path of its group
    above: str  # the package of the file that names it
    key: str  # the key of its choice; "" where no word can choose it
    own: str | None  # the package that its line of a list states

    def place(self, header: str | None, relative: str) -> str:
        return _join(self.above, header if self.own is None else self.own, relative)


@dataclass(frozen=True)
class _Result:
    """A file of the composition, in its order."""

    path: str
    package: str
    key: str = ""


class _Tree:
    """The tree of files under a primary file."""

    def __init__(
        self, read: Callable[[str], PartFile], choices: Mapping[str, Option], removed: set[str]
    ) -> None:
        self._read, self._choices, self._removed = read, dict(choices), removed
        self._used: set[str] = set()
        self._known: dict[str, Option] = {}

    def visit(self, node: _Node, relative: str = "", *, root: bool = False) -> list[_Result]:
        """The files of a node in their order; the last default is looked at first, since what it
        overrides counts for those before it.
        """
        file = self._read(node.path)
        package = node.place(file.package, relative)
        defaults = list(file.defaults)
        if any(not each.overrides for each in defaults) and not any(map(_is_self, defaults)):
            if root:  # Hydra warns
                raise Unusual
            defaults.append(Default("", SELF, None))
        self._note_overrides(defaults, node.group, package)
        backwards: list[_Result] = []
        visited = False
        for each in reversed(defaults):
            if each.overrides:
                continue
            visited = True
            if _is_self(each):
                backwards.append(_Result(node.path, package))
            else:
                backwards += reversed(self._follow(each, node.group, package))
        return backwards[::-1] if visited else [_Result(node.path, package, node.key)]

    def finish(self, files: Sequence[_Result]) -> None:
        """Every choice must have been of a slot, and no slot stands twice."""
        keys = [file.key for file in files if file.key]
        if {*self._choices, *self._removed} - self._used or len(keys) > len({*keys}):
            raise Unusual

    def _note_overrides(self, defaults: Sequence[Default], group: str, package: str) -> None:
        """The choices that a list makes for other lists; the first of a slot counts."""
        seen = False
        for each in defaults:
            if seen and not each.overrides and not _is_self(each):
                raise Unusual
            if each.overrides:
                seen = True
                self._choices.setdefault(_key(each, group, package), each.option)

    def _follow(self, default: Default, group: str, package: str) -> list[_Result]:
        """The files that one line of a list stands for."""
        if not default.group:
            relative, _, name = str(default.option).rpartition("/")
            inside = _path(relative, group) if relative else group
            path = f"{inside}/{name}" if inside else name
            node = _Node(path, inside, package, "", default.package)
            return self.visit(node, relative.lstrip("/"))
        key, option = _key(default, group, package), default.option
        if key in self._choices:
            option = self._choices[key]
            self._used.add(key)
        inside, relative = _path(default.group, group), default.group.lstrip("/")
        if isinstance(option, tuple):
            return [
                file
                for name in option
                for file in self._visit_option(inside, name, package, default, relative)
            ]
        if key in self._removed:
            self._used.add(key)
            return []
        if self._known.setdefault(key, option) != option:
            raise Unusual
        if option is None:
            return []
        return self.visit(
            _Node(f"{inside}/{option}", inside, package, key, default.package), relative
        )

    def _visit_option(
        self, inside: str, name: str, package: str, default: Default, relative: str
    ) -> list[_Result]:
        node = _Node(f"{inside}/{name}", inside, package, "", default.package)
        return self.visit(node, relative)


def _read_default(line: Any) -> Default:
    """A line of a list: `noise: [a,b]`, `override /size: mini`, `other_file`, `_self_`."""
    if isinstance(line, str) and (found := _FILE.fullmatch(line)):
        return Default("", found[1], found[2])
    if not (isinstance(line, Mapping) and len(line) == 1):
        raise Unusual
    (key, option), *_ = line.items()
    found = _ITEM.fullmatch(str(key))
    names = option if isinstance(option, list) else [option]
    usual = all(isinstance(name, str) and re.fullmatch(_NAME, name, re.ASCII) for name in names)
    if not found or not (option is None or usual):
        raise Unusual
    option = tuple(option) if isinstance(option, list) else option
    return Default(found[2], option, found[3], bool(found[1]))


def _is_self(default: Default) -> bool:
    return not default.group and default.option == SELF


def _path(group: str, above: str) -> str:
    """The path of a group that a file of the group `above` names."""
    return group[1:] if group.startswith("/") else f"{above}/{group}" if above else group


def _key(default: Default, group: str, package: str) -> str:
    """The key of a choice: the group, and `@package` where the package is another one."""
    path = _path(default.group, group)
    place = _join(package, default.package, default.group.lstrip("/"))
    return path if path.replace("/", ".") == place else f"{path}@{place or GLOBAL}"


def _join(above: str, package: str | None, relative: str) -> str:
    """The package of a file inside the package above it."""
    own = relative.replace("/", ".") if package is None else package
    place = f"{above}.{own}" if above and own else above or own
    before, found, after = place.rpartition(GLOBAL)
    return after.lstrip(".") if found else before + after


def _merge(config: dict[str, Any], settings: Mapping[str, Any]) -> None:
    """Write settings over `config`: mappings by their names, all else whole."""
    for key, value in settings.items():
        if key not in config:
            config[key] = copy_plain(value)
            continue
        old = config[key]
        if isinstance(old, dict) and isinstance(value, dict):
            _merge(old, value)
        elif _replaces(value, old):
            config[key] = copy_plain(value)
        elif value != UNSET:
            raise Unusual


def _replaces(value: Any, old: Any) -> bool:
    """Whether a value replaces an old one; a mapping over a reference would change its target."""
    groups = isinstance(value, (dict, list))
    if isinstance(old, (dict, list)):
        refers = value is None or (isinstance(value, str) and "${" in value)
        return refers if isinstance(old, dict) else refers or isinstance(value, list)
    return value != UNSET and not (groups and isinstance(old, str) and "${" in old)
