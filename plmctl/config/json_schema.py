"""JSON Schema of the settings of commands, and of the files that hold them, for editors.

JSON Schema, draft 2020-12: https://json-schema.org/draft/2020-12.
"""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Union

import plmctl
from plmctl.config.build import MISSING
from plmctl.config.command import Command, all_commands, find_command
from plmctl.config.headers import header
from plmctl.config.part_help import list_settings
from plmctl.config.reached import KEY as REACHED
from plmctl.config.recipes import part_files
from plmctl.config.schema import MANY, hints
from plmctl.config.settings import Setting, comment_of
from plmctl.config.spec import VERSION, Record
from plmctl.core.errors import UsageError, find_meant, nearest
from plmctl.core.spelling import spell_line
from plmctl.core.terminal import tell
from plmctl.core.values import describe_values
from plmctl.storage.atomic import write_text
from plmctl.storage.paths import find_cache_folder

DRAFT = "https://json-schema.org/draft/2020-12/schema"
REFERENCE = {"type": "string", "pattern": r"\$\{.+\}"}  # to another setting: ${size.width}
FOLDER = "schema"  # below the cache folder
Node = dict[str, Any]

_KINDS: dict[Any, str] = {
    int: "integer",
    float: "number",
    bool: "boolean",
    str: "string",
    Path: "string",
    type(None): "null",
    None: "null",
}


def describe_command(
    kind: type[Command], config_dirs: Sequence[str] = (), plugins: Sequence[str] = ()
) -> Node:
    """The schema of a file of settings of a command, such as a recipe of `plmctl pretrain`."""
    slots = {slot: part_files(slot, config_dirs) for slot in hints(kind) if slot not in kind.idle}
    chosen = {slot: files for slot, files in slots.items() if files}
    root = _describe_group(kind)
    for slot, files in chosen.items():
        root["properties"][slot] = _describe_slot(slot, files, plugins)
    # the choice of parts, a fact of a recipe, and one of a saved run, which are no settings
    root["properties"] |= {"defaults": _describe_defaults(chosen), REACHED: {"type": "object"}}
    root["properties"] |= {VERSION: {"type": "integer"}}
    root |= {"$schema": DRAFT, "title": f"plmctl {kind.about.name}"}
    return root


def show_schema(
    name: str | None, *, config_dirs: Sequence[str] = (), plugins: Sequence[str] = ()
) -> None:
    """Print the schema of a command's settings, or {name: schema} of all commands."""
    commands = {kind.about.name: kind for kind in all_commands(tuple(plugins)).values()}
    if name is not None and name not in commands:
        near = find_meant(name, commands) or "pretrain"
        raise UsageError(
            f"'{name}' is no command with settings{nearest(name, commands)}"
            f"\n  fix: {spell_line('help', near, '--schema')}"
        )
    wanted = {name: commands[name]} if name else commands
    schemas = {each: describe_command(kind, config_dirs, plugins) for each, kind in wanted.items()}
    tell(json.dumps(schemas[name] if name else schemas, indent=1, ensure_ascii=False))
    if not (config_dirs or plugins):  # for the editor of YAML files that plmctl writes
        for each, kind in wanted.items():
            _keep(find_schema(kind.about.verb), schemas[each])


def find_schema(verb: str) -> Path:
    """The file in the cache folder that holds the schema of a command."""
    return find_cache_folder() / FOLDER / plmctl.__version__ / f"{verb}.json"


def name_schema(verb: str) -> str:
    """The first line of a file of settings: the comment by which an editor finds their schema,
    which is written where it is missing; "" without a folder to write it in.

    The path is absolute, so the file may be moved; the schema is there without a network.
    """
    file = find_schema(verb)
    try:
        if not file.is_file():
            _keep(file, describe_command(find_command(verb)))
    except OSError:
        return ""
    return f"# yaml-language-server: $schema={file.resolve().as_uri()}\n"


def _keep(file: Path, schema: Node) -> None:
    write_text(file, json.dumps(schema, indent=1, ensure_ascii=False) + "\n")


def describe_values_of(annotation: Any) -> Node:
    """The schema of the values that an annotation takes; {} where anything goes."""
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        rules = [rule.words for rule in annotation.__metadata__ if hasattr(rule, "words")]
        return describe_values_of(inner[0]) | {"$comment": "; ".join(rules)}
    if origin is Literal:
        return {"enum": list(inner)}
    if origin in (Union, types.UnionType):
        return {"anyOf": [describe_values_of(each) for each in inner]}
    if annotation in _KINDS:
        return {"type": _KINDS[annotation]}
    if (origin or annotation) in (list, tuple, Sequence, Collection, Iterable):
        return {"type": "array", "items": describe_values_of(inner[0]) if inner else {}}
    if typing.is_typeddict(annotation):
        keys = typing.get_type_hints(annotation)
        return {
            "type": "object",
            "properties": {key: describe_values_of(hint) for key, hint in keys.items()},
        }
    if (origin or annotation) in (dict, Mapping):
        return {
            "type": "object",
            "additionalProperties": describe_values_of(inner[1]) if inner else {},
        }
    return {}


def _describe_group(kind: type[Record]) -> Node:
    """The schema of a group of settings, which has no others."""
    properties = {}
    for name, hint in hints(kind).items():
        default = getattr(kind(), name)
        if isinstance(default, Record):
            properties[name] = _describe_group(type(default))
            continue
        values = describe_values_of(hint)
        properties[name] = {"anyOf": [values, REFERENCE]} if values else {}
        if text := comment_of(kind, name):
            properties[name]["description"] = text
        if default != MISSING and isinstance(default, (bool, int, float, str, type(None))):
            properties[name]["default"] = default
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _describe_slot(slot: str, files: Mapping[str, Path], plugins: Sequence[str]) -> Node:
    """The settings of all parts of a slot, each with the parts that have it."""
    root: Node = {"type": ["object", "array", "string", "null"], "properties": {}}
    root["description"] = "\n".join(f"{name}: {header(file).about}" for name, file in files.items())
    for name, file in files.items():
        for setting in list_settings(file, plugins):
            own = setting.path.removeprefix(f"{slot}.")
            if own != setting.path and not setting.target:
                _add(root, own.split("."), name, setting)
    return root


def _add(root: Node, path: Sequence[str], part: str, setting: Setting) -> None:
    """Add a setting of a part at its path; of several parts, the values of all."""
    for key in path[:-1]:
        root = root["properties"].setdefault(key, {"type": ["object", "string", "null"]})
        root.setdefault("properties", {})
    new = {"anyOf": [REFERENCE], "description": ""}
    known = root["properties"].setdefault(path[-1], new)
    if "anyOf" not in known:  # a group in one part, a value in another
        return
    values = {} if setting.hint is None else describe_values_of(setting.hint)
    if values not in known["anyOf"]:
        known["anyOf"].append(values)
    line = f"{part}: {setting.meaning or describe_values(setting.hint)}".rstrip(": ")
    known["description"] = "\n".join(filter(None, [known["description"], line]))


def _describe_defaults(slots: Mapping[str, Collection[str]]) -> Node:
    """The list by which a file chooses parts: [override /optim: adamw]."""
    choices = {}
    for slot, names in slots.items():
        one: Node = {"enum": [*names, None]}
        several: Node = {"type": "array", "items": {"enum": list(names)}}
        choices[f"override /{slot}"] = {"anyOf": [one, several]} if slot in MANY else one
    item = {"type": "object", "properties": choices}
    return {"type": "array", "items": {"anyOf": [item, {"type": "string"}]}}
