"""`plmctl help <part>`: the settings of a part with their defaults, types and meanings."""

from __future__ import annotations

import dataclasses
import inspect
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml
from rich.table import Table

from plmctl.core.errors import UsageError, nearest
from plmctl.core.locate import locate
from plmctl.core.terminal import screen, tell
from plmctl.run.build import build
from plmctl.run.glossary import known_fields
from plmctl.run.headers import header
from plmctl.run.part_help import Setting, list_settings, targets
from plmctl.run.recipes import conf_dir, part_files

FIELDS = "fields"  # the word that asks for the glossary


def explain(
    what: str | None, *, as_json: bool, plugins: Sequence[str] = (), config_dirs: Sequence[str] = ()
) -> None:
    """Show the slots, the parts of one slot (`noise`), one part (`noise=span_mask`, `span_mask`),
    or the names of what rows carry (`fields`).
    """
    slots = {group: part_files(group, config_dirs) for group in _groups(config_dirs)}
    if what is None:
        _list(
            {f"plmctl help {group}": ", ".join(files) for group, files in slots.items()}
            | {f"plmctl help {FIELDS}": "what rows and batches carry: names, shapes, meanings"},
            as_json=as_json,
        )
        return
    if what == FIELDS:
        _list(_fields(config_dirs, plugins), as_json=as_json)
        return
    if what in slots:
        _list(
            {f"{what}={name}": header(file).about for name, file in slots[what].items()},
            as_json=as_json,
        )
        return
    file = _chosen(what, slots)
    found = list_settings(file, plugins)
    if as_json:
        tell(json.dumps([dataclasses.asdict(each) for each in found], indent=1, ensure_ascii=False))
        return
    tell(f"{file}\n{header(file).about}")
    for target in targets(file):
        tell(f"\n{target.rpartition('.')[2]}: {inspect.getdoc(locate(target, plugins)) or ''}")
    if drawn := _picture(file, plugins):
        tell(f"\n{drawn}")
    tell("")
    _list({f"{each.path}={each.default}": _words(each) for each in found}, as_json=False)


def _picture(file: Path, plugins: Sequence[str]) -> str:
    """What a part with its defaults draws of itself, if it can (`picture`)."""
    node = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
    target = node.get("_target_") if isinstance(node, dict) else None
    if target is None or not hasattr(locate(target, plugins), "picture"):
        return ""
    return str(build(node, plugins=plugins, path=file.parent.name).picture())


def _fields(config_dirs: Sequence[str], plugins: Sequence[str]) -> dict[str, str]:
    """{name: what it is, and the parts that introduce it}."""
    found = {}
    for name, (field, settings) in known_fields(config_dirs, plugins).items():
        origin = f" ({', '.join(settings)})" if settings else ""
        found[name] = f"{field.words}{origin}"
    return found


def _groups(config_dirs: Sequence[str]) -> list[str]:
    folders = [conf_dir(), *map(Path, config_dirs)]
    return sorted(
        {
            place.name
            for folder in folders
            for place in folder.iterdir()
            if place.is_dir() and place.name != "recipes"
        }
    )


def _chosen(what: str, slots: Mapping[str, Mapping[str, Path]]) -> Path:
    """The file of `noise=span_mask`, or of a name that only one slot has."""
    group, _, name = what.rpartition("=")
    named = {
        f"{slot}={each}": file for slot, files in slots.items() for each, file in files.items()
    }
    matching = [
        choice for choice in named if choice == what or (not group and choice.endswith(f"={name}"))
    ]
    if len(matching) > 1:
        fix = "\n  fix: " + " or ".join(f"plmctl help {choice}" for choice in matching)
        raise UsageError(f"{what}: several slots have a part of this name{fix}")
    if not matching:
        known = [
            *slots,
            FIELDS,
            *(slots.get(group) or [name for files in slots.values() for name in files]),
        ]
        raise UsageError(
            f"{what}: there is no such slot or part{nearest(name, known)};"
            " plmctl help lists the slots"
        )
    return named[matching[0]]


def _words(setting: Setting) -> str:
    needed = "must be given" if not setting.default else ""
    return "; ".join(filter(None, [setting.meaning, setting.kind, needed]))


def _list(lines: Mapping[str, str], *, as_json: bool) -> None:
    if as_json:
        tell(json.dumps(lines, indent=1, ensure_ascii=False))
        return
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(overflow="fold", max_width=48)
    table.add_column(overflow="fold")
    for left, right in lines.items():
        table.add_row(left, right)
    screen().print(table)
