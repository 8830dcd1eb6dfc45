"""The composition of part files as plain values, for defaults lists of the usual kind.

Hydra makes a node of every setting, and asks every defaults list for references: nine tenths of
the time of a composition. What is unusual is left to it, and so is every mistake.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from plmctl.run.build import MISSING

GLOBAL = "_global_"  # the package of a file whose settings stand at the top
_CHOICE = re.compile(r"([\w/]+(?:@[\w.]+)?)=([A-Za-z_]\w*|\[[\w,]*\])", re.ASCII)
_SCALARS = (str, int, float, bool, type(None))
_NO_NAMES = {"null", "true", "false", "nan", "inf"}  # Hydra reads them as values


class Unusual(Exception):
    """What is left to Hydra, which knows all kinds of defaults and words every mistake."""


@dataclass(frozen=True)
class DefaultsEntry:
    """One entry of a defaults list: `- override /noise@eval.noise: [token_mask]`."""

    group: str  # "/noise"
    package: str | None  # "eval.noise"
    options: str | Sequence[str] | None
    override: bool = False
    fixed: bool = False  # `- parts/single`, which no choice replaces

    @property
    def relative(self) -> str:
        """Where its settings stand if nothing says another place, in those of its file."""
        return self.group.removeprefix("/").replace("/", ".")


@dataclass(frozen=True)
class PartFile:
    """What a file states."""

    header: str | None  # its `# @package`
    entries: Sequence[DefaultsEntry | None]  # its defaults list; None stands for its own settings
    settings: Mapping[str, Any]


def compose_usual(
    verb: str, words: Sequence[str], read: Callable[[str], PartFile | None]
) -> dict[str, Any]:
    """What Hydra composes of the file of `verb` and these choices of part files.

    Args:
        verb: The file from which the composition starts.
        words: `group=option`, `group@package=option` or `group=[option,option]`.
        read: Reads the file at `group/option`.

    Raises:
        Unusual: It takes Hydra.
    """
    choices: dict[str, str | Sequence[str]] = {}
    for word in words:
        choice = _CHOICE.fullmatch(word)
        if choice is None or choice[1] in choices:
            raise Unusual
        several = choice[2].startswith("[")
        names = choice[2].strip("[]").split(",") if choice[2] != "[]" else []
        if any(name.lower() in _NO_NAMES or not name.isidentifier() for name in names):
            raise Unusual
        choices[choice[1]] = names if several else names[0]
    composition = _Composition(read, choices)
    settings: dict[str, Any] = {}
    for package, own in composition.list_files(verb):
        for key in reversed(package.split(".") if package else []):
            own = {key: own}
        _merge(settings, own)
    if "hydra" in settings:
        raise Unusual
    return settings


class _Composition:
    """The files of one composition, and which option each group has by now."""

    def __init__(
        self, read: Callable[[str], PartFile | None], choices: dict[str, str | Sequence[str]]
    ) -> None:
        self._read = read
        self._choices: dict[str, str | Sequence[str] | None] = dict(choices)
        self._used: set[str] = set()  # groups that have been met; each is met once

    def list_files(self, verb: str) -> list[tuple[str, Mapping[str, Any]]]:
        """(the dotted place of its settings, its settings) of every file, in order."""
        files = [*self._visit(verb, DefaultsEntry("", None, verb), "")][::-1]
        if not self._choices.keys() <= self._used:
            raise Unusual  # a choice for a group that is not there
        return files

    def _visit(
        self, path: str, named_by: DefaultsEntry, above: str
    ) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """The files that the one at `path` names, and itself, from the last to the first: a choice
        that stands further below holds for all above.

        Args:
            path: `group/option`.
            named_by: The entry that names it.
            above: The place of the file in which that entry stands.
        """
        file = self._read(path)
        if file is None:
            raise Unusual
        group = path.rpartition("/")[0]
        place = _join(above, _choose_package(named_by, file.header))
        others = [entry for entry in file.entries if entry is not None]
        for number, other in enumerate(others):
            if other.override and not all(later.override for later in others[number:]):
                raise Unusual
            if other.override:
                self._choices.setdefault(_key_of(other, group, place), other.options)
        entries = [*file.entries]
        if None not in entries:  # its own settings win over those of what it names
            entries.append(None)
        for entry in reversed(entries):
            if entry is None:
                yield place, file.settings
            elif not entry.override:
                yield from self._visit_entry(entry, group, place)

    def _visit_entry(
        self, entry: DefaultsEntry, group: str, place: str
    ) -> Iterator[tuple[str, Mapping[str, Any]]]:
        options = entry.options
        if not entry.fixed:
            key = _key_of(entry, group, place)
            if key in self._used:
                raise Unusual
            self._used.add(key)
            options = self._choices.get(key, options)
        folder = _folder_of(entry, group)
        names = [options] if isinstance(options, str) else options or ()
        for name in reversed(names):
            yield from self._visit(f"{folder}/{name}".removeprefix("/"), entry, place)


def _folder_of(entry: DefaultsEntry, group: str) -> str:
    """The folder of an entry in a file of `group`."""
    if entry.group.startswith("/") or not group:
        return entry.group.removeprefix("/")
    return f"{group}/{entry.group}".removesuffix("/")


def _key_of(entry: DefaultsEntry, group: str, place: str) -> str:
    """How overrides name the entry of a file of `group` whose settings stand at `place`."""
    folder = _folder_of(entry, group)
    package = _join(place, entry.relative if entry.package is None else entry.package)
    return folder if package == folder.replace("/", ".") else f"{folder}@{package or GLOBAL}"


def _choose_package(entry: DefaultsEntry, header: str | None) -> str:
    """Where a file puts its settings: as its entry says, as its header says, by its folder."""
    if entry.package is not None:
        return entry.package
    if header is None:
        return entry.relative
    return header if header.startswith(GLOBAL) else f"{GLOBAL}.{header}"


def _join(above: str, package: str) -> str:
    """A package inside of another one, unless it says that it starts at the top."""
    whole = ".".join(name for name in (above, package) if name)
    return whole.rpartition(GLOBAL)[2].removeprefix(".")


def _merge(settings: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Write `more` over the settings as Hydra does: groups are merged, lists replaced, and ???
    changes nothing that is there.
    """
    for key, value in more.items():
        there = settings.get(key)
        if key not in settings:
            settings[key] = _copy(value)
        elif isinstance(value, (dict, list)):
            refers = isinstance(there, str) and "${" in there
            if refers or (isinstance(there, (dict, list)) and type(there) is not type(value)):
                raise Unusual
            if isinstance(there, dict) and isinstance(value, dict):
                _merge(there, value)
            else:
                settings[key] = _copy(value)
        elif value != MISSING:
            settings[key] = value


def _copy(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: _copy(child) for key, child in node.items()}
    return [_copy(child) for child in node] if isinstance(node, list) else node


def set_usual(settings: dict[str, Any], key: str, value: Any) -> bool:
    """Put a value at a dotted key where there is one by now; whether that is all that `key=value`
    asks for.
    """
    *above, last = key.split(".")
    node: Any = settings
    for name in above:
        node = node.get(name) if isinstance(node, dict) else None
    if not isinstance(node, dict) or last not in node:
        return False
    items, there = value if isinstance(value, list) else [value], node[last]
    held = isinstance(there, dict) or (isinstance(there, str) and "${" in there)
    if isinstance(value, list) and held:
        return False
    if any(not isinstance(item, _SCALARS) or "${" in str(item) for item in items):
        return False
    node[last] = value
    return True
