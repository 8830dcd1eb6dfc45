"""What the settings of a part mean: comments and defaults of its YAML file, types and further
defaults of its signature.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from plmctl.core.locate import locate, parameters
from plmctl.core.values import Rule, fit
from plmctl.run.build import MARKS, MISSING
from plmctl.run.overrides import spell
from plmctl.run.recipes import conf_dir
from plmctl.run.settings import settings

_PACKAGE = re.compile(r"^# @package (\S+)", re.MULTILINE)


@dataclass(frozen=True)
class Setting:
    """One setting as `plmctl help` shows it."""

    path: str
    default: str  # as a file writes it; empty: it must be given
    kind: str = ""  # what its values are, in words
    meaning: str = ""
    target: str = ""  # of a part: its class


def part_files(group: str, config_dirs: Sequence[str] = ()) -> dict[str, Path]:
    """{name: file} of the parts of a slot; a user's own hides one of conf/ that is called the
    same.
    """
    folders = [conf_dir(), *map(Path, reversed(config_dirs))]
    return {
        file.stem: file for folder in folders for file in sorted((folder / group).glob("*.yaml"))
    }


def explained(
    file: Path, plugins: Sequence[str] = (), *, types: bool = True, at: str | None = None
) -> list[Setting]:
    """The settings of a part file and of those that it is made of, by their config paths.

    `types`: also look at signatures, which imports the parts. `at`: where the part stands, if not
    where the file says.
    """
    text = file.read_text(encoding="utf-8")
    package = _PACKAGE.search(text)
    place = at if at is not None else package[1].replace("_global_", "") if package else _slot(file)
    found: dict[str, Setting] = {}
    inherited = _inherited(file, plugins, types)
    reader = _Reader(
        text, plugins, types, {each.path: each.target for each in inherited if each.target}, place
    )
    for each in inherited + list(reader.read(yaml.compose(text), place)):
        before = found.get(each.path, each)
        meaning = each.meaning or before.meaning or _of_plumbing().get(each.path, "")
        found[each.path] = replace(each, kind=each.kind or before.kind, meaning=meaning)
    return list(found.values())


def targets(file: Path) -> list[str]:
    """The classes of the parts that the file chooses, the outermost of each."""
    content = yaml.safe_load(file.read_text(encoding="utf-8"))
    return list(_targets(content))


def kind(annotation: Any) -> str:
    """What values a parameter takes: `a whole number or null`; empty where anything goes."""
    rules = [
        rule.words for rule in getattr(annotation, "__metadata__", ()) if isinstance(rule, Rule)
    ]
    try:
        fit(object(), annotation)
    except ValueError as error:
        return ", ".join([str(error).removeprefix("must be "), *rules])
    return ""


@functools.cache
def _of_plumbing() -> dict[str, str]:
    """{path: meaning} of the settings that are no part's."""
    told = [each for verb in ("finetune", "pretrain") for each in settings(verb)]
    return {name.partition("=")[0]: meaning for name, meaning in told}


def _slot(file: Path) -> str:
    return file.parent.name


def _inherited(file: Path, plugins: Sequence[str], types: bool) -> list[Setting]:
    """Of the files in its list of defaults: `parts/bert`, `/search@task.search: beam`."""
    content = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
    found: list[Setting] = []
    for each in content.get("defaults") or ():
        for group, name in each.items() if isinstance(each, dict) else [(".", each)]:
            slot, _, at = group.removeprefix("override ").partition("@")
            shipped = conf_dir() / (file.parent.name if slot == "." else slot.lstrip("/"))
            folders = [file.parent, shipped] if slot == "." else [shipped]
            others = [folder / f"{name}.yaml" for folder in folders if isinstance(name, str)]
            if other := next((other for other in others if other.is_file()), None):
                found += explained(other, plugins, types=types, at=at or None)
    return found


def _targets(content: Any) -> Iterator[str]:
    if isinstance(content, dict) and "_target_" in content:
        yield content["_target_"]
    elif isinstance(content, dict):
        for value in content.values():
            yield from _targets(value)


class _Reader:
    """Walks the nodes of a YAML text, which know where they stand in it."""

    def __init__(
        self, text: str, plugins: Sequence[str], types: bool, classes: Mapping[str, str], place: str
    ) -> None:
        self.text, self.lines, self.plugins, self.types, self.classes = (
            text,
            text.splitlines(),
            plugins,
            types,
            classes,
        )
        self.defaults = f"{place}.defaults" if place else "defaults"  # of Hydra: files, no setting
        self.first = next(
            (n for n, line in enumerate(self.lines) if line and not line.startswith("#")), 0
        )

    def read(self, node: Any, path: str, outer: str = "") -> Iterator[Setting]:
        if not isinstance(node, yaml.MappingNode):
            return
        content = {key.value: (key, value) for key, value in node.value}
        target = (
            content["_target_"][1].value if "_target_" in content else self.classes.get(path, "")
        )
        wanted = self._parameters(target) if target else {}
        if "_target_" in content:
            yield Setting(
                path,
                target.rpartition(".")[2],
                "a part",
                outer or self._comment(*content["_target_"]),
                target,
            )
        for name, (key, value) in content.items():
            where = f"{path}.{name}" if path else name
            if name in MARKS or where == self.defaults:
                continue
            meaning = self._comment(key, value) or outer
            if isinstance(value, yaml.MappingNode) and value.value:
                yield from self.read(value, where, meaning)
            else:
                yield Setting(
                    where,
                    self._default(value),
                    kind(wanted[name].annotation) if name in wanted else "",
                    meaning,
                )
        for name, parameter in wanted.items() if "_target_" in content else ():
            words = (
                ""
                if name in content or parameter.default is inspect.Parameter.empty
                else kind(parameter.annotation)
            )
            if words and not words.startswith("a part"):
                yield Setting(f"{path}.{name}", spell(parameter.default) or '""', words)

    def _parameters(self, target: str) -> Mapping[str, inspect.Parameter]:
        return parameters(locate(target, self.plugins)) if self.types else {}

    def _default(self, value: Any) -> str:
        written = self.text[value.start_mark.index : value.end_mark.index].strip()
        return "" if value.value == MISSING else written

    def _comment(self, key: Any, value: Any) -> str:
        """What stands behind a setting in its line, or else in lines of their own above it."""
        nested = isinstance(value, yaml.MappingNode) and not value.flow_style
        mark = key.end_mark if nested else value.end_mark
        rest = self.lines[mark.line][mark.column :] if mark.line < len(self.lines) else ""
        if "#" in rest and not rest.lstrip().startswith((",", "}")):
            return str(rest.partition("#")[2]).strip()
        above: list[str] = []
        line = key.start_mark.line - 1
        while line > self.first and self.lines[line].lstrip().startswith("#"):
            above.insert(0, self.lines[line].strip().lstrip("# "))
            line -= 1
        return " ".join(above)
