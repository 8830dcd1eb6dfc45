"""What Hydra leaves to us once a config is composed: one length, no leftovers of replaced parts,
types, signatures.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from plmctl.core.errors import ConfigError, UsageError, nearest
from plmctl.core.locate import locate, parameters
from plmctl.core.values import takes_mapping
from plmctl.run import schema
from plmctl.run.build import MISSING, check
from plmctl.run.make_spec import make_spec
from plmctl.run.overrides import OverrideWord
from plmctl.run.recipes import conf_dir, load
from plmctl.run.references import UnresolvedReference, references_in, work_out
from plmctl.run.run_name import wrong_name
from plmctl.run.spec import Part, Provenance, RunSpec


def finish(
    settings: dict[str, Any], words: Sequence[OverrideWord], provenance: Provenance
) -> tuple[RunSpec | None, list[UsageError]]:
    """The spec of what Hydra composed, and every problem in it: one length, no leftovers, types,
    signatures.

    Args:
        settings: What was composed, with its references; it is changed.
        words: The overrides as Hydra was told them.
        provenance: Its `recipe` names the run, where nothing else does.
    """
    errors: list[UsageError] = [*_empty_misshapen(settings), *_one_length(settings, words)]
    plugins, recipe = provenance.plugins, provenance.recipe
    removed = _drop_leftovers(settings, plugins) + _drop_foreign(settings, words, plugins)
    run = settings.get("run")
    if recipe and "recipe" in settings:
        settings["recipe"] = recipe
    if recipe and isinstance(run, dict) and run.get("name") is None:
        run["name"] = Path(recipe).stem
    try:
        content = work_out(settings)
    except UnresolvedReference as error:
        return None, [*errors, _explain_unresolved(settings, error, words)]
    for path in list(_paths_of(content)):
        for tree in (settings, content):
            _set(tree, path, _home(_select(content, path)))
    run = content.get("run")
    if isinstance(run, dict) and run.get("name") is not None:
        errors += wrong_name(run["name"])
    errors += [
        ConfigError(path, text, "a text without ${...}: what a run saves is worked out already")
        for path, text in references_in(content)
    ]
    known = replace(provenance, removed=tuple(removed), written=Part(settings))
    spec, misfits = make_spec(provenance.verb, content, known)
    return spec, [*errors, *misfits, *_size_keys(content), *check_parts(content, plugins)]


def _explain_unresolved(
    settings: Mapping[str, Any], error: UnresolvedReference, words: Sequence[OverrideWord]
) -> ConfigError:
    """A setting that refers to another one, which the part chosen there does not have."""
    missing = re.search(r"Interpolation key '(.+?)' not found", error.reason)
    if missing is None:
        return ConfigError(error.path, "${...}", error.reason)
    slot, _, name = missing[1].rpartition(".")
    chosen = next(
        (word.sample for word in words if word.group and word.key == slot),
        f"this {slot}" if slot else "the config",
    )
    text = _select(settings, error.path) or "${...}"  # the item of a list: not shown
    fix = f"{error.path}=<a value>" + (f", or leave out {chosen}" if "=" in chosen else "")
    allowed = f"refers to {missing[1]}, and {chosen} has no {name}"
    return ConfigError(error.path, text, allowed, fix=fix)


def check_parts(
    content: Mapping[str, Any], plugins: Sequence[str] = (), path: str = ""
) -> list[UsageError]:
    """The signatures of every part in a config, at any depth; what only building can know is not
    asked for.
    """
    errors: list[UsageError] = []
    for key, value in content.items():
        where = f"{path}{key}"
        if isinstance(value, Mapping) and "_target_" in value:
            # these belong to the mix, see build.entry
            mixed = ("weight", "on") if path == "objective." else ()
            errors += check(
                {name: item for name, item in value.items() if name not in mixed},
                None,
                plugins,
                path=where,
            )
        elif isinstance(value, Mapping):
            errors += check_parts(value, plugins, f"{where}.")
    return errors


def _empty_misshapen(settings: dict[str, Any]) -> list[ConfigError]:
    """Slots with a list or a text where parts belong; they are emptied, so that everything else
    is still looked at.
    """
    errors = []
    for slot in (*schema.MANY, *schema.ONE):
        node = _follow(settings, _select(settings, slot))
        if node and node != MISSING and not isinstance(node, dict):
            allowed = (
                "is a group of settings"
                if slot in schema.ONE
                else "is a group of parts, each under its name"
            )
            errors.append(ConfigError(slot, node, allowed))
            _set(settings, slot, None)
    return errors


def _one_length(settings: dict[str, Any], words: Sequence[OverrideWord]) -> list[ConfigError]:
    """Exactly one of train.steps|tokens|epochs|minutes: one given on the command line clears the
    recipe's.
    """
    train = settings.get("train")
    if not isinstance(train, dict):
        return []
    lengths = [name for name in schema.LENGTHS if train.get(name) is not None]
    named = {word.key for word in words}
    if given := [name for name in lengths if f"train.{name}" in named]:
        train |= {name: None for name in lengths if name not in given}
        lengths = given
    if len(lengths) == 1:
        return []
    fix = "train.steps=1000" if not lengths else f"leave out train.{lengths[-1]}"
    there = (
        f"there are {' and '.join(f'train.{name}' for name in lengths)}"
        if lengths
        else "there is none"
    )
    allowed = f"exactly one of {', '.join(schema.LENGTHS)} is set; {there}"
    return [ConfigError("train", ..., allowed, fix=fix)]


def _drop_leftovers(settings: dict[str, Any], plugins: Sequence[str] = ()) -> list[str]:
    """Settings of a part that nobody chose (its mapping has no `_target_`): a recipe's numbers
    for a slot that was replaced.
    """
    removed = []
    for slot in schema.MANY:
        parts = _follow(settings, _select(settings, slot)) or {}
        for name in list(parts):
            part = _follow(settings, parts[name])
            if not (isinstance(part, dict) and "_target_" in part):
                removed += _settings(f"{slot}.{name}", parts.pop(name))
    for slot in schema.ONE:
        if isinstance(settings.get(slot), dict) and "_target_" not in settings[slot]:
            removed += _settings(slot, settings[slot])
            settings[slot] = None
        for path, value in list(_inner(settings.get(slot), plugins, slot)):
            removed += _settings(path, value)
            _set(settings, path, None)
    return removed


def _inner(node: Any, plugins: Sequence[str], path: str) -> Iterator[tuple[str, Any]]:
    """(path, value) of the same inside of a part: `eps` for the norm of an embedding that has
    none.
    """
    if not (isinstance(node, Mapping) and "_target_" in node):
        return
    try:
        wanted = parameters(locate(node["_target_"], plugins))
    except ValueError:
        return  # check_parts reports it
    for key, child in node.items():
        if (
            not isinstance(child, Mapping)
            or "_target_" in child
            or key not in wanted
            or takes_mapping(wanted[key].annotation)
        ):
            yield from _inner(child, plugins, f"{path}.{key}")
        else:
            yield f"{path}.{key}", child


def _drop_foreign(
    settings: Mapping[str, Any], words: Sequence[OverrideWord], plugins: Sequence[str]
) -> list[str]:
    """A recipe's numbers for another part of a slot than the command line chose (`betas`, after
    `optim=muon`).
    """
    removed = []
    named = {word.key for word in words}
    for slot in (
        word.key for word in words if word.group and word.key in (*schema.ONE, "tokenizer")
    ):
        node = settings.get(slot)
        if not isinstance(node, dict):
            continue
        try:
            known = parameters(locate(node["_target_"], plugins)) if "_target_" in node else ()
        except ValueError:
            continue  # check_parts reports it
        for key in [key for key in node if key not in known and not str(key).startswith("_")]:
            if f"{slot}.{key}" not in named:
                removed += _settings(f"{slot}.{key}", node.pop(key))
    return removed


def _settings(path: str, value: Any) -> list[str]:
    if isinstance(value, Mapping):
        return [line for key, item in value.items() for line in _settings(f"{path}.{key}", item)]
    return [f"{path}={value}"]


def _size_keys(content: Mapping[str, Any]) -> list[ConfigError]:
    """`size` is numbers without a signature: the shipped sizes say which there are."""
    given = content.get("size")
    if not isinstance(given, Mapping):
        return []
    known = _shipped_sizes()
    return [
        ConfigError(f"size.{key}", value, f"no such number{nearest(key, known)}")
        for key, value in given.items()
        if known - {key} == known
    ]


@functools.cache
def _shipped_sizes() -> set[str]:
    return {str(key) for file in (conf_dir() / "size").glob("*.yaml") for key in load(file)}


def _paths_of(content: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in content.items():
        if isinstance(value, Mapping):
            yield from _paths_of(value, f"{prefix}{key}.")
        elif isinstance(value, str) and value.startswith("~") and schema.is_path(f"{prefix}{key}"):
            yield f"{prefix}{key}"


def _home(path: str) -> str:
    """`~` as the home folder, unless a file of that very name is here."""
    return path if os.path.exists(path) else os.path.expanduser(path)


def _select(settings: Mapping[str, Any], path: str, depth: int = 8) -> Any:
    """The value at a dotted key, groups followed where they are references; None where there is
    nothing.
    """
    node: Any = settings
    for key in path.split("."):
        node = _follow(settings, node, depth)
        node = node.get(key) if isinstance(node, Mapping) else None
    return node


def _follow(settings: Mapping[str, Any], value: Any, depth: int = 8) -> Any:
    """What a value that is one reference (`${noise}`) stands for; any other as it is."""
    whole = re.fullmatch(r"\$\{([\w.]+)\}", value) if isinstance(value, str) else None
    if whole is None or not depth:
        return value
    return _follow(settings, _select(settings, whole[1], depth - 1), depth - 1)


def _set(settings: Any, path: str, value: Any) -> None:
    """Put a value at a dotted key, unless that is inside of what is only referred to."""
    *above, last = path.split(".")
    for key in above:
        settings = settings[key] if isinstance(settings, dict) else None
    if isinstance(settings, dict):
        settings[last] = value
