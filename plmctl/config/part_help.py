"""The meaning of a part's settings: comments and defaults of its YAML file, types and further
defaults of its signature. Settings without a comment have the words of its docstring.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Any

import yaml

from plmctl.config.build import MARKS, MISSING
from plmctl.config.command import find_command
from plmctl.config.recipes import conf_dir, part_files
from plmctl.config.settings import Setting, list_plumbing
from plmctl.config.spec import RunSpec
from plmctl.config.walks import parts_in
from plmctl.core.locate import locate, parameters
from plmctl.core.spelling import spell
from plmctl.core.values import describe_values
from plmctl.storage.settings_file import find_fast_loader, read_part_text, refuse_bad_yaml

_ARGUMENT = re.compile(r"^    (\w+): (.*(?:\n(?:     .*)?$)*)", re.MULTILINE)
_PACKAGE = re.compile(r"^# @package (\S+)", re.MULTILINE)


def list_settings(
    file: Path, plugins: Sequence[str] = (), *, types: bool = True, at: str = ""
) -> list[Setting]:
    """The settings of a part file and of the files that it is made of, by their config paths.

    `types`: also look at signatures and docstrings, which imports the parts. `at`: where the part
    stands, if not where the file says.
    """
    found = _list_merged(file, plugins, types=types, at=at)
    classes = {setting.path: setting.target for setting in found if setting.target}
    if not types:
        return found
    return [
        replace(each, meaning=each.meaning or _read_docstring(each.path, classes, plugins))
        for each in found
    ]


def _list_merged(file: Path, plugins: Sequence[str], *, types: bool, at: str = "") -> list[Setting]:
    """The same, without docstrings."""
    text = read_part_text(file)
    package = _PACKAGE.search(text)
    stated = package[1].replace("_global_", "") if package else file.parent.name
    inherited = _list_inherited(file, plugins, types)
    classes = {setting.path: setting.target for setting in inherited if setting.target}
    reader = _Reader(text, plugins, types, classes)
    by_path: dict[str, Setting] = {}
    with refuse_bad_yaml(file):
        node = yaml.compose(text, Loader=find_fast_loader())
    for setting in [*inherited, *reader.read(node, at or stated, top=True)]:
        before = by_path.get(setting.path, setting)
        meaning = setting.meaning or before.meaning or _read_plumbing().get(setting.path, "")
        by_path[setting.path] = replace(setting, kind=setting.kind or before.kind, meaning=meaning)
    return list(by_path.values())


def _read_docstring(path: str, classes: Mapping[str, str], plugins: Sequence[str]) -> str:
    """The words on a setting in the docstring of the part around it; empty without any."""
    owner, _, name = path.rpartition(".")
    target = classes.get(owner)
    return describe_arguments(locate(target, plugins)).get(name, "") if target else ""


@functools.cache
def describe_arguments(part: Any) -> Mapping[str, str]:
    """{name: what the docstring says of it} of the arguments of a part, and of its base classes."""
    kinds = inspect.getmro(part) if inspect.isclass(part) else (part,)
    stated = getattr(part, "Settings", None)
    kinds = (*kinds, *(inspect.getmro(stated) if inspect.isclass(stated) else ()))
    found: dict[str, str] = {}
    for kind in kinds:
        for holder in (kind, vars(kind).get("__init__")):
            text = inspect.cleandoc(getattr(holder, "__doc__", None) or "")
            section = text.partition("\nArgs:\n")[2]
            section = re.split(r"\n(?=\S)", section)[0]
            for name, words in _ARGUMENT.findall(section):
                plain = " ".join(words.split()).removesuffix(".").replace("None:", "null:")
                found.setdefault(name, plain)
    return found


def targets(file: Path) -> list[str]:
    """The classes of the parts that the file chooses, the outermost of each."""
    with refuse_bad_yaml(file):
        return list(_targets_in(read_part_text(file)))


def name_part(spec: RunSpec, slot: str) -> str:
    """The user's name for the part in a slot of a spec: the name of its file, `regulariser=fgm`; of
    a part without a file, its class.
    """
    return name_target(slot, spec[slot], spec.provenance.config_dirs)


def name_target(slot: str, node: Mapping[str, Any], config_dirs: Sequence[str]) -> str:
    """The same for a part that stands anywhere."""
    target = str(node["_target_"])
    files = part_files(slot, config_dirs)
    named = (name for name, file in files.items() if target in targets(file)[:1])
    return next(named, target.rpartition(".")[2])


@functools.lru_cache(maxsize=1024)
def _targets_in(text: str) -> tuple[str, ...]:
    """Those of the text of a part file; all files are read whenever a field is lacking."""
    content = yaml.load(text, find_fast_loader())
    return tuple(part["_target_"] for _, part in parts_in(content))


@functools.cache
def _read_plumbing() -> dict[str, str]:
    """{path: meaning} of the settings that are no part's."""
    listed = [*list_plumbing(find_command("finetune")), *list_plumbing(find_command("pretrain"))]
    return {setting.path: setting.meaning for setting in listed}


def _list_inherited(file: Path, plugins: Sequence[str], types: bool) -> list[Setting]:
    """The settings of the files in its list of defaults: `parts/bert`,
    `/search@task.search: beam`.
    """
    with refuse_bad_yaml(file):
        content = yaml.load(read_part_text(file), find_fast_loader()) or {}
    inherited: list[Setting] = []
    for default in content.get("defaults") or ():
        for group, name in default.items() if isinstance(default, dict) else [(".", default)]:
            slot, _, at = group.removeprefix("override ").partition("@")
            shipped = conf_dir() / (file.parent.name if slot == "." else slot.lstrip("/"))
            folders = [file.parent, shipped] if slot == "." else [shipped]
            others = [folder / f"{name}.yaml" for folder in folders if isinstance(name, str)]
            if other := next((other for other in others if other.is_file()), None):
                inherited += _list_merged(other, plugins, types=types, at=at)
    return inherited


@dataclass
class _Reader:
    """Walks the nodes of a YAML text, which know where they stand in it."""

    text: str
    plugins: Sequence[str]
    types: bool
    classes: Mapping[str, str]  # {path: class} of the parts that the text changes

    def read(
        self, node: Any, path: str, outer: str = "", *, top: bool = False
    ) -> Iterator[Setting]:
        """The settings of a node; `outer`: the comment at the group that it stands in."""
        if not isinstance(node, yaml.MappingNode):
            return
        content = {key.value: (key, value) for key, value in node.value}
        wanted: Mapping[str, inspect.Parameter] = {}
        if chosen := content.get("_target_"):
            target = chosen[1].value
            meaning = outer or self._comment(*chosen)
            yield Setting(path, target.rpartition(".")[2], "a part", meaning, target)
            outer = ""  # the comment of the part is none of its settings'
        else:
            target = self.classes.get(path, "")
        if target and self.types:
            wanted = parameters(locate(target, self.plugins))
        for name, (key, value) in content.items():
            if name in MARKS or (top and name == "defaults"):  # those are Hydra's
                continue
            where = f"{path}.{name}" if path else name
            meaning = self._comment(key, value) or outer
            if isinstance(value, yaml.MappingNode) and value.value:
                yield from self.read(value, where, meaning)
                continue
            hint = wanted[name].annotation if name in wanted else None
            kind = describe_values(hint) if name in wanted else ""
            yield Setting(where, self._default(value), kind, meaning, hint=hint)
        for name, parameter in wanted.items() if chosen else ():
            kind = describe_values(parameter.annotation)
            if name in content or parameter.default is parameter.empty or not kind:
                continue
            if not kind.startswith("a part"):
                hint = parameter.annotation
                yield Setting(f"{path}.{name}", spell(parameter.default), kind, hint=hint)

    def _default(self, value: Any) -> str:
        written = self.text[value.start_mark.index : value.end_mark.index].strip()
        return "" if value.value == MISSING else written

    def _comment(self, key: Any, value: Any) -> str:
        """The comment behind a setting in its line, or else in lines of their own above it."""
        nested = isinstance(value, yaml.MappingNode) and not value.flow_style
        mark = key.end_mark if nested else value.end_mark
        lines = [*self.text.splitlines(), ""]
        rest = lines[mark.line][mark.column :]
        if "#" in rest and not rest.lstrip().startswith((",", "}")):
            return str(rest.partition("#")[2]).strip()
        head = next((n for n, line in enumerate(lines) if line and line[0] != "#"), 0)
        above = takewhile(
            lambda line: line.startswith(f"{' ' * key.start_mark.column}#"),
            reversed(lines[head + 1 : key.start_mark.line]),
        )
        return " ".join(line.strip().lstrip("# ") for line in reversed([*above]))
