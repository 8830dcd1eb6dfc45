"""From plain settings to the spec of a command, with every setting that does not fit."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from plmctl.config.build import MISSING, Unknown, check_parts, refuse_value
from plmctl.config.command import find_command
from plmctl.config.other_names import guess, ours
from plmctl.config.schema import MANY, SAVED, hints
from plmctl.config.spec import Provenance, Record, RunSpec, freeze
from plmctl.core.errors import (
    ConfigError,
    UsageError,
    did_you_mean,
    find_meant,
    list_some,
    raise_all,
)
from plmctl.core.spelling import spell_setting
from plmctl.core.used_cells import drop_unused_cells
from plmctl.core.values import fit

NAMED_TEXTS = ("data.mixture", "data.sources")  # {name: settings of a text}

Group = TypeVar("Group", bound=Record)


def make_spec(
    verb: str,
    settings: Mapping[str, Any],
    provenance: Provenance | None = None,
    *,
    saved: bool = False,
    parts: bool = False,
) -> tuple[RunSpec, list[UsageError]]:
    """The spec of a command from plain settings, and every one of them that does not fit.

    Where `settings` lack a key, its default counts; a value that does not fit stays as it is. Every
    key may be missing from `saved` settings: its value is null.

    Args:
        parts: Names and types inside of parts are checked, too.
    """
    errors: list[UsageError] = []
    plugins = provenance.plugins if provenance else ()
    kind = SAVED.get(verb) or find_command(verb, plugins)
    if saved:
        needed = (field.name for field in dataclasses.fields(kind) if field.default == MISSING)
        settings = {**dict.fromkeys(needed), **settings}
    spec = _make_record(
        kind, settings, "", errors, top=hints(kind), plugins=plugins if parts else None
    )
    spec = replace(spec, provenance=provenance or Provenance(verb))
    return spec, [
        error for error in errors if not saved or getattr(error, "value", None) is not ...
    ]


def spec_of(verb: str, settings: Mapping[str, Any], provenance: Provenance | None = None) -> Any:
    """The spec of a command from plain settings; raises every one of them that does not fit."""
    known = replace(provenance, verb=verb) if provenance else None
    spec, errors = make_spec(verb, settings, known)
    raise_all(errors)
    return spec


def _make_record(
    kind: type[Group],
    settings: Mapping[str, Any],
    path: str,
    errors: list[UsageError],
    *,
    top: Collection[str],
    plugins: Sequence[str] | None,
) -> Group:
    """The record of one group of settings.

    Args:
        top: The first words of all keys of the command.
        plugins: Packages whose parts may be named; None: parts are not looked at.
    """
    annotations, values = hints(kind), {}
    for key, value in settings.items():
        where = f"{path}{key}"
        hint = annotations.get(key)
        if hint is None:
            other = ours(where, lambda name: name.partition(".")[0] in top)
            known = [f"{path}{name}" for name in annotations]
            near = [other] if other else guess(where, known)
            allowed = f"there is no such setting{did_you_mean(near)}"
            errors.append(Unknown(where, value, allowed, meant="".join(near[:1])))
        elif not (inspect.isclass(hint) and issubclass(hint, Record)):
            fitting = _fit_value(kind, key, where, value, hint, errors)
            if isinstance(value, Mapping):
                errors += [] if plugins is None else check_parts(value, plugins, path=where)
                fitting = drop_unused_cells(fitting)
            values[key] = freeze(fitting)
        elif isinstance(value, Mapping):
            values[key] = _make_record(hint, value, f"{where}.", errors, top=top, plugins=plugins)
        else:
            names = list(hints(hint))
            allowed = f"is a group of settings: {list_some(names)}"
            meant = find_meant(value, names) or names[0]
            fix = f"{where}.{meant}=..." if value is not None else hint.instead_of_null
            errors.append(ConfigError(where, value, allowed, fix=fix))
    return kind(**values)


def _fit_value(
    kind: type[Record], key: str, where: str, value: Any, hint: Any, errors: list[UsageError]
) -> Any:
    """`value` as its annotation wants it; with a problem, as it is."""
    needed = hint is Any and getattr(kind, key) == MISSING
    if (isinstance(value, str) and value == MISSING) or (needed and not _is_chosen(key, value)):
        errors.append(ConfigError(where, ..., "must be given", fix=f"{where}=..."))
        return value
    try:
        return fit(value, hint)
    except ValueError as error:
        if where in NAMED_TEXTS and isinstance(value, Mapping):
            errors += _refuse_texts(where, value)
        else:
            errors.append(refuse_value(where, value, hint, error))
        return value


def _refuse_texts(where: str, value: Mapping[str, Any]) -> list[ConfigError]:
    """Texts that stand where the settings of a text belong."""
    return [
        ConfigError(
            f"{where}.{name}",
            node,
            "a mapping of names to values",
            fix=spell_setting(f"{where}.{name}.path", node) if isinstance(node, str) else "",
        )
        for name, node in value.items()
        if not isinstance(node, Mapping)
    ]


def _is_chosen(slot: str, value: Any) -> bool:
    """Whether a slot holds something; what a recipe sets of a part that is not chosen is no
    part.
    """
    return value is not None and (
        slot in MANY or not isinstance(value, Mapping) or "_target_" in value
    )
