"""The steps after Hydra has composed a config: one length, no leftovers of replaced parts, types,
signatures.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from plmctl.config import groups, schema
from plmctl.config.budgets import TABLE, check_table
from plmctl.config.build import MISSING, OF_MIX, Unknown, class_of, parameters_of, refuse_value
from plmctl.config.make_spec import make_spec
from plmctl.config.overrides import OverrideWord
from plmctl.config.reached import KEY, check_reached
from plmctl.config.recipes import conf_dir, find_line, find_recipe, load, part_files
from plmctl.config.references import UnresolvedReference, at_origin, find_origin, work_out
from plmctl.config.run_name import runs_of
from plmctl.config.spec import Part, Provenance, RunSpec, all_parts_in
from plmctl.config.stated import find_stated, name_line
from plmctl.config.walks import leaves, references_in, select
from plmctl.core.errors import ConfigError, PlmctlError, UsageError, collect, find_meant, nearest
from plmctl.core.locate import takes_any
from plmctl.core.values import fit, takes_mapping

# settings of a schedule, of which one counts -> the other one, and its value that says nothing
WARMUPS = {"warmup_steps": ("warmup_share", 0.0), "warmup_share": ("warmup_steps", 0)}


def finish(
    settings: dict[str, Any], words: Sequence[OverrideWord], provenance: Provenance
) -> tuple[RunSpec | None, list[PlmctlError]]:
    """The spec of the composition by Hydra, and every problem in it: one length, no leftovers,
    types, signatures.

    Args:
        settings: The composed settings, with their references; they are changed.
        words: The overrides as Hydra was given them.
        provenance: Its `recipe` names the run, where nothing else does.
    """
    errors: list[PlmctlError] = [*_empty_misshapen(settings), *_one_length(settings, words)]
    errors += _one_batch(settings, words)
    _one_warmup(settings, words, exact=not provenance.within)
    errors += _take_values(settings)
    wrong_sizes = list(_fit_sizes(settings))
    plugins, recipe = provenance.plugins, provenance.recipe
    stated = find_stated(words, provenance.config_dirs)
    leftovers = _drop_leftovers(settings, plugins)
    removed = [*leftovers, *_drop_foreign(settings, words, plugins, stated)]
    run = settings.get("run")
    if recipe and "recipe" in settings:
        settings["recipe"] = recipe
    if recipe and isinstance(run, dict) and run.get("name") is None:
        run["name"] = Path(recipe).stem
    if wrong_sizes:  # settings that refer to them would be second mistakes
        return None, [*errors, *wrong_sizes]
    try:
        content = work_out(settings, errors)
    except UnresolvedReference as error:
        return None, [*errors, _explain_unresolved(settings, error, words)]
    if (name := select(content, "run.name")) is not None:
        with collect(errors):
            runs_of(str(name))
    known = replace(provenance, removed=tuple(removed), written=Part(settings))
    spec, misfits = make_spec(provenance.verb, content, known, parts=True)
    unknown = [name_line(error, stated, settings) for error in [*misfits, *_size_keys(content)]]
    errors += [_name_file(error, provenance.config_dirs) for error in unknown]
    errors += check_table(content.get(TABLE))
    errors += _check_stated(provenance)
    unread = spec.find_unread({word.key for word in words})
    errors += _refuse_unread(unread, words, spec.select)
    return spec, at_origin(errors, settings)


def _refuse_unread(
    unread: Mapping[str, tuple[str, str]],
    words: Sequence[OverrideWord],
    value_of: Callable[[str], Any],
) -> Iterator[ConfigError]:
    """The error of every word that sets what the command does not read."""
    for key, (why, fix) in unread.items():
        for word in words:
            if f"{word.key}.".startswith(f"{key}.") and word.value != "null":
                allowed = f"without effect: {why}"
                value = value_of(word.key)
                yield ConfigError(word.key, value, allowed, fix=fix or "leave it out")


def _name_file(error: UsageError, config_dirs: Sequence[str]) -> UsageError:
    """The error of a `_target_` with the line of the user's file that states it and has to be
    corrected.
    """
    if not (isinstance(error, ConfigError) and error.path.endswith("._target_")):
        return error
    place, (key, _, meant) = find_line(str(error.value), config_dirs), error.fix.partition("=")
    if not place:
        return error
    named = f"_target_: {meant} in {place}" if key == error.path else ""
    fix = named or error.fix or f"correct {place}"
    return ConfigError(error.path, error.value, f"{error.allowed}; {place} names it", fix=fix)


def _explain_unresolved(
    settings: Mapping[str, Any], error: UnresolvedReference, words: Sequence[OverrideWord]
) -> ConfigError:
    """A setting that refers to another one, which the part chosen there does not have. If a word
    replaced that part by a value, the error names the word.
    """
    for path, text in references_in(settings):
        named = re.findall(r"(?<=\{)[a-z_]\w*(?:\.\w+)+", text)
        for word in words:
            if isinstance(select(settings, word.key), Mapping):
                continue
            if lost := next((key for key in named if key.startswith(f"{word.key}.")), ""):
                allowed = f"keep its settings: {path} reads {lost}"
                fix = f"leave out {word.key}, or {path}=<a value>"
                return ConfigError(word.key, select(settings, word.key), allowed, fix=fix)
    missing = re.search(r"Interpolation key '(.+?)' not found", error.reason)
    if missing is None:
        return ConfigError(error.path, "${...}", error.reason)
    slot, _, name = missing[1].rpartition(".")
    chosen = next(
        (word.sample for word in words if word.group and word.key == slot),
        f"this {slot}" if slot else "the config",
    )
    text = select(settings, error.path) or "${...}"  # the item of a list: not shown
    fix = f"{error.path}=<a value>" + (f", or leave out {chosen}" if "=" in chosen else "")
    allowed = f"refers to {missing[1]}, and {chosen} has no {name}"
    return ConfigError(error.path, text, allowed, fix=fix)


def _empty_misshapen(settings: dict[str, Any]) -> Iterator[ConfigError]:
    """Slots with a list or a text where parts belong; they are emptied, so that everything else
    is still looked at.
    """
    for slot in (*schema.MANY, *schema.ONE):
        node = _follow(settings, slot)
        if node and node != MISSING and not isinstance(node, dict):
            what = "settings" if slot in schema.ONE else "parts, each under its name"
            yield ConfigError(slot, node, f"is a group of {what}")
            _set(settings, slot, None)


def _take_values(settings: dict[str, Any]) -> Iterator[ConfigError]:
    """Values where a part stands next to others (`stabiliser.mixout=2`); they are taken out."""
    for slot in schema.MANY:
        parts = _follow(settings, slot) or {}
        for name, value in list(parts.items()):
            if value is not None and not isinstance(value, dict) and not any(references_in(value)):
                allowed = f"a part, which has settings: {slot}.{name}.<a setting>={value}"
                fix = f"plmctl help {name}"
                yield ConfigError(f"{slot}.{name}", parts.pop(name), allowed, fix=fix)


def _fit_sizes(settings: dict[str, Any]) -> Iterator[ConfigError]:
    """Numbers of `size` that are not whole ones; 64.0 becomes 64."""
    given = settings.get("size")
    size: dict[str, Any] = given if isinstance(given, dict) else {}
    for key, value in list(size.items()):
        if not any(references_in(value)):
            try:
                size[key] = fit(value, int)
            except ValueError as error:
                yield refuse_value(f"size.{key}", value, int, error)


def _one_length(settings: dict[str, Any], words: Sequence[OverrideWord]) -> list[ConfigError]:
    """Exactly one of train.steps|tokens|words|epochs|minutes: one given on the command line clears
    the recipe's.
    """
    train = settings.get("train")
    if not isinstance(train, dict):
        return []
    lengths = [name for name in groups.LENGTHS if train.get(name) is not None]
    named = {word.key for word in words}
    if given := [name for name in lengths if f"train.{name}" in named]:
        train |= {name: None for name in lengths if name not in given}
        lengths = given
    if len(lengths) == 1:
        return []
    there = f"there are {' and '.join(f'train.{name}' for name in lengths)}"
    fix = " ".join(f"train.{name}=null" for name in lengths[1:])
    if not lengths:
        there, fix = "none is set", "train.steps=1000"
    allowed = f"exactly one of {', '.join(n for n in groups.LENGTHS if n in train)}; {there}"
    return [ConfigError("train", ..., allowed, fix=fix)]


def _one_batch(settings: dict[str, Any], words: Sequence[OverrideWord]) -> list[ConfigError]:
    """Either train.batch_size or train.batch_tokens on the command line: train.batch_size there
    clears a recipe's train.batch_tokens.
    """
    named, train = {word.key for word in words}, settings.get("train")
    if not isinstance(train, dict) or train.get("batch_tokens") is None:
        return []
    if not {"train.batch_size", "train.batch_tokens"} <= named:
        if "train.batch_size" in named:
            train["batch_tokens"] = None
        return []
    allowed = "left out: train.batch_tokens says how many rows an update has"
    fix = "train.batch_tokens=null"
    return [ConfigError("train.batch_size", train.get("batch_size"), allowed, fix=fix)]


def _one_warmup(settings: dict[str, Any], words: Sequence[OverrideWord], *, exact: bool) -> None:
    """Either the updates of a warm-up or its share: a word for one clears the other's default.

    Args:
        exact: The usual limit does not cut it, either.
    """
    named = {word.key for word in words}
    for key in named:
        slot, _, name = key.rpartition(".")
        schedule, (other, none) = select(settings, slot), WARMUPS.get(name, ("", 0))
        if not (other and isinstance(schedule, dict) and schedule.get(name)):
            continue
        usual = {other: none, **({"warmup_limit": 1.0} if exact else {})}
        schedule |= {
            each: value
            for each, value in usual.items()
            if each in schedule and f"{slot}.{each}" not in named
        }


def _drop_leftovers(settings: dict[str, Any], plugins: Sequence[str]) -> Iterator[str]:
    """Settings of a part that nobody chose (its mapping has no `_target_`): a recipe's numbers
    for a slot that was replaced.
    """
    for slot in schema.MANY:
        parts = _follow(settings, slot) or {}
        for name in list(parts):
            part = _follow(settings, f"{slot}.{name}")
            if not (isinstance(part, dict) and "_target_" in part):
                yield from _lines(f"{slot}.{name}", parts.pop(name))
    for slot in schema.ONE:
        if isinstance(settings.get(slot), dict) and "_target_" not in settings[slot]:
            yield from _lines(slot, settings[slot])
            settings[slot] = None
    slots = {slot: settings.get(slot) for slot in schema.ONE}
    for path, part in list(all_parts_in(slots)):
        wanted = parameters_of(part, plugins) or {}
        for key, child in part.items():
            is_group = isinstance(child, Mapping) and "_target_" not in child
            if is_group and key in wanted and not takes_mapping(wanted[key].annotation):
                # `eps` for the norm of an embedding that has none
                yield from _lines(f"{path}.{key}", child)
                _set(settings, f"{path}.{key}", None)


def _drop_foreign(
    settings: Mapping[str, Any],
    words: Sequence[OverrideWord],
    plugins: Sequence[str],
    stated: Collection[str],
) -> Iterator[str]:
    """A recipe's numbers for another part of a slot than the command line chose (`betas`, after
    `optim=muon`, and `bias`, after `model.embedding.norm=rms_norm`); what the chosen file itself
    states is none.
    """
    meant = {*(word.key for word in words), *stated}
    for word in words:
        chosen = word.group and word.key in (*schema.ONE, "tokenizer")
        slot = word.key.removesuffix("._target_")
        node = select(settings, slot)
        if not ((chosen or slot != word.key) and isinstance(node, dict)):
            continue
        known = parameters_of(node, plugins) if "_target_" in node else {}
        if known is None or ("_target_" in node and takes_any(class_of(node, plugins))):
            continue
        of_mix = OF_MIX if slot.startswith("objective.") else ()
        takes = {*known, *of_mix}
        for key in [key for key in node if key not in takes and not str(key).startswith("_")]:
            if node[key] is None or f"{slot}.{key}" not in meant:
                yield from _lines(f"{slot}.{key}", node.pop(key))


def _lines(path: str, value: Any) -> list[str]:
    """`key=value` for each setting of a group."""
    return [f"{key}={setting}" for key, setting in leaves(value, path) if setting != {}]


def _check_stated(provenance: Provenance) -> Iterator[ConfigError]:
    """Mistakes in what the recipe states of itself."""
    if provenance.recipe:
        stated = load(find_recipe(provenance.recipe, provenance.config_dirs)).get(KEY)
        yield from check_reached(stated, part_files("size", provenance.config_dirs))


def _size_keys(content: Mapping[str, Any]) -> list[ConfigError]:
    """`size` is numbers without a signature: the shipped sizes say which there are."""
    given = content.get("size")
    if not isinstance(given, Mapping):
        return []
    known = _read_size_keys()
    return [
        Unknown(
            f"size.{key}",
            value,
            f"no such number{nearest(key, known)}",
            meant=find_meant(key, known),
        )
        for key, value in given.items()
        if key not in known
    ]


@functools.cache
def _read_size_keys() -> set[str]:
    return {str(key) for file in (conf_dir() / "size").glob("*.yaml") for key in load(file)}


def _follow(settings: Mapping[str, Any], path: str) -> Any:
    """The value at a dotted key, behind the references on the way (`${noise}`)."""
    return select(settings, find_origin(settings, path))


def _set(settings: Any, path: str, value: Any) -> None:
    """Put a value at a dotted key, unless that is inside of a reference."""
    *above, last = path.split(".")
    for key in above:
        settings = settings[key] if isinstance(settings, dict) else None
    if isinstance(settings, dict):
        settings[last] = value
