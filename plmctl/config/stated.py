"""The user's own part files that a command line chooses: the lines that state their settings, and
what such a file lacks.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from plmctl.config import schema
from plmctl.config.build import TAKEN, Unknown
from plmctl.config.overrides import OverrideWord
from plmctl.config.plain_composition import Unusual, read_package
from plmctl.config.walks import select
from plmctl.core.errors import ConfigError
from plmctl.storage.settings_file import read_part_text, refuse_bad_yaml

_READY = "write defaults: [<a file of the slot>, _self_], or _target_: <its class>"


def find_stated(words: Sequence[OverrideWord], config_dirs: Sequence[str]) -> dict[str, str]:
    """{config path: file:line} of the settings in the user's part files that the words choose.

    Settings of a file below another one do not count where that one has another class.
    """
    stated: dict[str, str] = {}
    for group, place, name in _choices(words):
        if file := _find_own(group, name, config_dirs):
            stated |= _read_lines(file, group, place, config_dirs)
    return stated


def refuse_unplaced(
    words: Sequence[OverrideWord], config_dirs: Sequence[str]
) -> Iterator[ConfigError]:
    """Chosen files of the user that lack the line which says where their settings belong."""
    for group, place, name in _choices(words):
        file = _find_own(group, name, config_dirs)
        if file is None or place != group:
            continue
        text = read_part_text(file)
        keys = {key.value for key, _ in _entries(file, text)} - {"defaults"}
        if _package(text) is not None or not keys or not (group in schema.MANY or group in keys):
            continue
        package = "_global_" if group in keys else f"{group}.{name}"
        line = f"# @package {package}"
        allowed = f"{file} says nowhere where its settings belong; its first line must be '{line}'"
        fix = f"sed -i {shlex.quote(f'1i {line}')} {shlex.quote(str(file))}"
        yield ConfigError(group, name, allowed, fix=fix)


def refuse_classless(
    config: Mapping[str, Any], words: Sequence[OverrideWord], config_dirs: Sequence[str]
) -> Iterator[ConfigError]:
    """Chosen files of the user whose part has settings, and no class.

    Args:
        config: The settings as they were composed.
    """
    typed = {word.key for word in words}
    for group, place, name in _choices(words):
        file = _find_own(group, name, config_dirs)
        if file is None or group not in (*schema.ONE, *schema.MANY):
            continue
        lines = _read_lines(file, group, place, config_dirs)
        named = r"\.\w+" if group in schema.MANY and place == group else ""
        parts = (re.match(rf"{re.escape(place)}{named}(?=\.|$)", path) for path in lines)
        for part in dict.fromkeys(found[0] for found in parts if found):
            node = select(config, part)
            lacks = isinstance(node, Mapping) and node and "_target_" not in node
            if lacks and f"{part}._target_" not in typed:
                line = next(line for path, line in lines.items() if path.startswith(part))
                allowed = f"has no class; {line} states it with neither defaults nor _target_"
                yield ConfigError(part, ..., allowed, fix=f"{_READY}, in {file}")


def name_line(error: Any, stated: Mapping[str, str], settings: Mapping[str, Any]) -> Any:
    """The error of an unknown setting, or of a cell under a taken letter, with the line of the
    user's file that states it.
    """
    if isinstance(error, ConfigError) and TAKEN.search(error.path) and error.path in stated:
        letters = ", ".join(sorted(select(settings, error.path.rpartition(".")[0])))
        allowed = f"{error.allowed}; {stated[error.path]} states it, and taken are {letters}"
        return ConfigError(error.path, error.value, allowed, fix=error.fix)
    if not isinstance(error, Unknown) or error.path not in stated:
        return error
    line, (above, _, name) = stated[error.path], error.path.rpartition(".")
    meant = error.meant.rpartition(".")[2]
    fix = f"leave out {name}: in {line}"
    if meant and f"{above}.{meant}" not in stated:
        file, _, number = line.rpartition(":")
        change = shlex.quote(f"{number}s/{name}:/{meant}:/")
        fix = f"sed -i {change} {shlex.quote(file)}"
    return ConfigError(error.path, error.value, f"{error.allowed}; {line} states it", fix=fix)


def _choices(words: Sequence[OverrideWord]) -> Iterator[tuple[str, str, str]]:
    """(slot, config path, name of the part file) of each choice."""
    for word in words:
        if word.group and not word.mark.startswith("~"):
            group, _, place = word.key.partition("@")
            for name in word.sample.partition("=")[2].strip("[]").split(","):
                yield group, place or group, name.strip()


def _find_own(group: str, name: str, config_dirs: Sequence[str]) -> Path | None:
    files = (Path(folder, group, f"{name}.yaml") for folder in config_dirs)
    return next((file for file in files if file.is_file()), None)


def _read_lines(
    file: Path, group: str, place: str, config_dirs: Sequence[str], depth: int = 8
) -> dict[str, str]:
    """{config path: file:line} of a file and of the user's files in its list of defaults."""
    text = read_part_text(file)
    package = _package(text)
    at = place if place != group or package is None else package.removeprefix("_global_")
    own: dict[str, str] = {}
    below: dict[str, str] = {}
    for key, value in _entries(file, text):
        if key.value == "defaults":
            for slot, path, name in _read_defaults(value, group) if depth else ():
                if other := _find_own(slot, name, config_dirs):
                    below |= _read_lines(other, slot, path, config_dirs, depth - 1)
        else:
            own |= _walk(key, value, at.strip("."), file)
    changed = [path.removesuffix("_target_") for path in own if path.endswith("._target_")]
    kept = {path: line for path, line in below.items() if not path.startswith(tuple(changed))}
    return {**kept, **own}


def _walk(key: Any, value: Any, above: str, file: Path) -> dict[str, str]:
    """{config path: file:line} of a setting and of those inside of it."""
    path = f"{above}.{key.value}".strip(".")
    lines = {path: f"{file}:{key.start_mark.line + 1}"}
    for inner, node in value.value if value.id == "mapping" else ():
        lines |= _walk(inner, node, path, file)
    return lines


def _read_defaults(node: Any, group: str) -> Iterator[tuple[str, str, str]]:
    """(slot, config path, name) of the files in a list of defaults."""
    for item in node.value if node.id == "sequence" else ():
        if item.id == "scalar":
            yield group, group, item.value
        for key, value in item.value if item.id == "mapping" else ():
            slot, _, place = key.value.removeprefix("override ").partition("@")
            slot = slot.lstrip("/")
            names = value.value if value.id == "sequence" else [value]
            yield from ((slot, place or slot, str(name.value)) for name in names)


def _entries(file: Path, text: str) -> list[tuple[Any, Any]]:
    """The nodes of (key, value) at the top of a part file."""
    import yaml

    with refuse_bad_yaml(file):
        node = yaml.compose(text)
    return node.value if isinstance(node, yaml.MappingNode) else []


def _package(text: str) -> str | None:
    try:
        return read_package(text)
    except Unusual:
        return re.sub(r"\s", "", text)[:1]  # Hydra knows what it means
