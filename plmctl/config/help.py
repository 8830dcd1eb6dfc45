"""`plmctl help <part>`: the settings of a part with their defaults, types and meanings."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_type_hints

import yaml

from plmctl.config.build import build
from plmctl.config.command import all_commands, list_commands
from plmctl.config.glossary import known_fields
from plmctl.config.headers import header
from plmctl.config.launcher import Launching
from plmctl.config.other_names import guess
from plmctl.config.part_help import list_settings, targets
from plmctl.config.recipes import hint_at_own, load, part_files
from plmctl.config.recipes import slots as list_slots
from plmctl.config.references import work_out
from plmctl.config.settings import Setting, list_plumbing
from plmctl.config.terms import describe_command, explain_word
from plmctl.core.errors import UsageError, did_you_mean, find_alike, list_some
from plmctl.core.locate import locate
from plmctl.core.terminal import print_meanings, tell
from plmctl.storage.settings_file import read_part_text

FIELDS = "fields"  # the word that asks for the glossary
_LONG = 40  # characters of a meaning that is shown once
_OWNERS = 6  # commands or parts that are named for a setting


def explain(
    what: str | None, *, as_json: bool, plugins: Sequence[str] = (), config_dirs: Sequence[str] = ()
) -> None:
    """Show the slots, the parts of one slot (`noise`), one part (`noise=span_mask`, `span_mask`),
    one setting or a group of them (`train.minutes`, `train`). It also shows the names of the fields
    of rows (`fields`), or a word: a term, a recipe, a name of another trainer.
    """
    slots = {group: part_files(group, config_dirs) for group in list_slots(config_dirs)}
    if what is None:
        lines = {f"plmctl help {group}": ", ".join(files) for group, files in slots.items()}
        lines[f"plmctl help {FIELDS}"] = "fields of rows and batches: names, shapes, meanings"
    elif what == FIELDS:
        lines = _describe_fields(config_dirs, plugins)
    elif what in slots:
        lines = describe_command(what, plugins)
        lines |= {f"{what}={name}": header(file).about for name, file in slots[what].items()}
    else:
        lines = explain_word(what, config_dirs, plugins)
        # `learning rate`, `task surprisal`, `train minutes`
        names = [what, *(re.sub(r"[\s-]+", sign, what.strip()) for sign in "_=.")]
        what = next((name for name in names if _is_name(name, slots, plugins)), what)
        if not lines and not _is_name(what, slots, plugins):
            lines = _find_mentions(what, slots, plugins)
        alike = {f"{slot}={what}": files[what] for slot, files in slots.items() if what in files}
        if lines and len(alike) > 1:
            lines |= {choice: header(file).about for choice, file in alike.items()}
        if _explain_settings(what, slots, plugins, config_dirs, words=lines, as_json=as_json):
            return
    if as_json:
        tell(json.dumps(lines, indent=1, ensure_ascii=False))
    else:
        print_meanings([*lines.items()])


def is_command(what: str, *, plugins: Sequence[str] = (), config_dirs: Sequence[str] = ()) -> bool:
    """Whether a word is the name of a command, or of a group of commands, and of nothing else."""
    names = list_commands(tuple(plugins))
    groups = {name.partition(" ")[0] for name in names}
    if what not in {*names, *groups}:
        return False
    slots = {group: part_files(group, config_dirs) for group in list_slots(config_dirs)}
    return what not in slots and not _is_name(what, slots, plugins)


def _explain_settings(
    what: str,
    slots: Mapping[str, Mapping[str, Path]],
    plugins: Sequence[str],
    config_dirs: Sequence[str],
    *,
    words: Mapping[str, str],
    as_json: bool,
) -> bool:
    """Show settings of this name, or a part of the same meaning as the word; False for a word
    alone. UsageError where it is nothing.
    """
    found = _find_settings(what, slots, plugins)
    file = None
    if not found:
        try:
            file = _find_file(what, slots, plugins, config_dirs)
        except UsageError:
            if words:
                return False
            raise
    if words and not as_json:
        print_meanings([*words.items()])
        tell("")
    if file is None:
        _show_settings(found, as_json=as_json)
        return True
    _explain_part(file, plugins, as_json=as_json)
    return True


def _explain_part(file: Path, plugins: Sequence[str], *, as_json: bool) -> None:
    settings = list_settings(file, plugins)
    if as_json:
        _show_settings(settings, as_json=True)
        return
    tell(f"{file}\n{header(file).about}")
    if source := header(file).text("Data"):
        tell(f"data: {source}")
    for target in targets(file):
        tell(f"\n{target.rpartition('.')[2]}: {inspect.getdoc(locate(target, plugins)) or ''}")
    if picture := _draw(file, plugins):
        tell(f"\n{picture}")
    tell("")
    _show_settings(settings, as_json=False)


def _show_settings(settings: Sequence[Setting], *, as_json: bool) -> None:
    if as_json:
        nodes = [dataclasses.asdict(replace(setting, hint=None)) for setting in settings]
        for node in nodes:
            del node["hint"]
        tell(json.dumps(nodes, indent=1, ensure_ascii=False))
    else:
        print_meanings(list(_describe_once(settings)))


def _describe_once(settings: Sequence[Setting]) -> Iterator[tuple[str, str]]:
    """(a setting with its default, its meaning) of each; a long meaning that comes again is that of
    the first setting that has it.
    """
    first: dict[str, str] = {}
    for setting in settings:
        text = _describe(setting)
        owner = first.setdefault(text, setting.path)
        again = owner != setting.path and len(setting.meaning) > _LONG
        yield f"{setting.path}={setting.default}", f"as {owner}" if again else text


def _find_settings(
    what: str, slots: Mapping[str, Mapping[str, Path]], plugins: Sequence[str]
) -> list[Setting]:
    """The settings called `what`, or of a group of that name, of all commands; those of the parts
    of its slot, each with the part whose it is.
    """

    def is_meant(path: str) -> bool:
        return f"{path}.".startswith(f"{what}.")

    owners: dict[Setting, list[str]] = {}
    for setting in list_plumbing(Launching):
        if is_meant(setting.path):
            owners.setdefault(setting, []).append("every command")
    for kind in all_commands(tuple(plugins)).values():
        for setting in list_plumbing(kind):
            if is_meant(setting.path):
                owners.setdefault(setting, []).append(f"plmctl {kind.about.name}")
    slot, _, name = what.partition(".")
    for part, file in slots.get(slot, {}).items() if name else ():
        for setting in list_settings(file, plugins):
            # the parts of some slots stand under their names: noise.token_mask.rate
            if is_meant(setting.path) or setting.path == f"{slot}.{part}.{name}":
                owners.setdefault(setting, []).append(f"{slot}={part}")
    return [replace(setting, owners=tuple(names)) for setting, names in owners.items()]


def _is_name(what: str, slots: Mapping[str, Mapping[str, Path]], plugins: Sequence[str]) -> bool:
    """Whether a part or a setting is called so."""
    parts = {
        name for slot, files in slots.items() for part in files for name in (part, f"{slot}={part}")
    }
    return what in parts or bool(_find_settings(what, slots, plugins))


def _find_mentions(
    what: str, slots: Mapping[str, Mapping[str, Path]], plugins: Sequence[str]
) -> dict[str, str]:
    """{what shows it: its line} of the parts and settings whose line has these words, or their
    spelling with other marks between them.
    """
    words = re.findall(r"\w+", what.replace("_", " "))
    if not words or re.search("[.=]", what):  # the name of a setting
        return {}
    spelled = re.compile(r"(?<!\w)" + r"[\W_]+".join(map(re.escape, words)) + r"s?(?!\w)", re.I)
    lines = {
        f"plmctl help {slot}={part}": header(file).about
        for slot, files in slots.items()
        for part, file in files.items()
    }
    lines |= {f"plmctl help {each.path}": each.meaning for each in _list_all(plugins)}
    return {shown: line for shown, line in lines.items() if spelled.search(line)}


def _list_all(plugins: Sequence[str]) -> Iterator[Setting]:
    """The settings of all commands."""
    for kind in all_commands(tuple(plugins)).values():
        yield from list_plumbing(kind)


def _draw(file: Path, plugins: Sequence[str]) -> str:
    """The picture of a part with its defaults, if it has one (`picture`)."""
    node = yaml.safe_load(read_part_text(file)) or {}
    target = node.get("_target_") if isinstance(node, dict) else None
    part: Any = locate(target, plugins) if target is not None else None
    made = part if isinstance(part, type) or part is None else get_type_hints(part).get("return")
    if not hasattr(made, "picture"):
        return ""
    try:
        whole = work_out({"size": load(part_files("size")["base"]), "part": node})["part"]
        return str(build(whole, plugins=plugins, path=file.parent.name).picture())
    except (UsageError, ValueError):  # it refers to more than the size of a model
        return ""


def _describe_fields(config_dirs: Sequence[str], plugins: Sequence[str]) -> dict[str, str]:
    """{name: what it is, and the parts that introduce it}."""
    return {
        name: f"{field.words} ({', '.join(parts)})" if parts else field.words
        for name, (field, parts) in known_fields(config_dirs, plugins).items()
    }


def _find_file(
    what: str,
    slots: Mapping[str, Mapping[str, Path]],
    plugins: Sequence[str],
    config_dirs: Sequence[str],
) -> Path:
    """The file of `noise=span_mask`, or of a name that only one slot has."""
    group, _, name = what.rpartition("=")
    choices = {
        f"{slot}={part}": file for slot, files in slots.items() for part, file in files.items()
    }
    matching = [
        choice
        for choice in choices
        if choice == what or (not group and choice.endswith(f"={name}"))
    ]
    if len(matching) > 1:
        fix = "\n  fix: " + " or ".join(f"plmctl help {choice}" for choice in matching)
        raise UsageError(f"{what}: several slots have a part of this name{fix}")
    if not matching:
        parts = slots.get(group) or [part for files in slots.values() for part in files]
        known = [
            each.path
            for kind in all_commands(tuple(plugins)).values()
            for each in list_plumbing(kind)
        ]
        names = [*slots, FIELDS, *parts, *list_commands(tuple(plugins))]
        meant = find_alike(name, names) or guess(what, dict.fromkeys(known))
        fix = f"plmctl help {meant[0]}" if meant else "plmctl help lists the slots"
        near = f"{did_you_mean(meant)}{hint_at_own(config_dirs)}"
        raise UsageError(f"{what}: there is no such slot, part or setting{near}\n  fix: {fix}")
    return choices[matching[0]]


def _describe(setting: Setting) -> str:
    needed = "must be given" if not setting.default else ""
    words = "; ".join(filter(None, [setting.meaning, setting.kind, needed]))
    own = setting.owners
    if not own:
        return words
    more = f"; plmctl help {setting.path} --json lists all" if len(own) > _OWNERS else ""
    return f"{words} [{list_some(own, _OWNERS)}{more}]"
