"""A mistake in a stage of `train.stages`: its path in it, and the list as typed without it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from plmctl.config.build import UnknownSetting
from plmctl.config.spec import Part, thaw
from plmctl.core.errors import ConfigError, PlmctlError, nearest
from plmctl.core.spelling import Typed, spell, spell_setting

Stages = Sequence[Mapping[str, Any]]


def at_stage(error: PlmctlError, stages: Stages, number: int, slots: str = "") -> PlmctlError:
    """An error of the config that holds in a stage. It has the name of the setting in
    `train.stages`, and the whole list as its fix.

    Args:
        error: The error of the config, with its paths; others stay as they are.
        stages: The content of `train.stages`.
        number: The number of the stage, from 0.
        slots: The slots of a stage that were checked: "format noise". An error elsewhere comes of
            it.
    """
    where, own = f"train.stages.{number}", stages[number]
    if not isinstance(error, ConfigError) or error.path.startswith("train.stages"):
        return error
    path = _name_in(own, error.path)
    if not any(is_in(path, key) or is_in(key, path) for key in own):
        return _come_of(error, stages, number, slots)
    fix, allowed = _mend(error, path, stages, number), error.allowed
    if isinstance(error, UnknownSetting):  # the stage does not name the class of the part
        above, _, name = path.rpartition(".")
        known = ", ".join(f"{above}.{other}" for other in error.known)
        takes = f"there are {known}" if known else f"this {above} has none"
        allowed = f"there is no such setting{nearest(name, error.known)}; {takes}"
    return ConfigError(f"{where}.{path}", error.value, allowed, fix=fix)


def is_in(key: str, group: str) -> bool:
    """Whether a dotted key is `group`, or something in it."""
    return f"{key}.".startswith(f"{group}.")


def spell_stages(stages: Stages) -> str:
    """`train.stages` as one types it."""
    return spell_setting("train.stages", list(stages))


def change_stage(
    stages: Stages, number: int, changes: Mapping[str, Any], without: Sequence[str] = ()
) -> str:
    """`train.stages` as one types it with other settings of one stage, and less those named
    `without`, which may stand inside of parts.
    """
    own = dict(stages[number])
    for path in without:
        own = _drop(own, path)
    for path, value in changes.items():
        key = next((key for key in own if path != key and is_in(path, key)), "")
        inner = Part(own[key]) if isinstance(own.get(key), Mapping) else None
        rest = path.removeprefix(f"{key}.")
        own |= {path: value} if inner is None else {key: thaw(inner.with_value(rest, value))}
    return spell_stages([*stages[:number], own, *stages[number + 1 :]])


def _come_of(error: ConfigError, stages: Stages, number: int, slots: str) -> ConfigError:
    """An error elsewhere, under what of the stage it comes of."""
    own = stages[number]
    causes = [key for key in own if any(is_in(key, slot) for slot in slots.split())]
    slot = "".join({f".{key.partition('.')[0]}" for key in causes})
    cause = slot if slot.count(".") == 1 else ""
    elsewhere = error.path if error.value is ... else f"{error.path}={spell(error.value)}:"
    advised = re.match(r"[\w.]+(?==)", error.fix)
    of_run = advised and not any(is_in(advised[0], slot) for slot in slots.split())
    fix = error.fix if of_run else change_stage(stages, number, {}, without=causes)
    allowed = f"{elsewhere} {error.allowed}"
    return ConfigError(f"train.stages.{number}{cause}", ..., allowed, fix=fix)


def _mend(error: ConfigError, path: str, stages: Stages, number: int) -> str:
    """The list with the setting that the error advises; without one, less the wrong setting.

    Advice of the error about the rest of the run stays as it is.
    """
    own = stages[number]
    advised = re.fullmatch(r"([\w.]+)=(\S+)", error.fix)
    if not advised:
        # less a whole part, where it is none of ours
        wrong = [key for key in own if is_in(path, key)] if path.endswith("_target_") else [path]
        return error.fix or change_stage(stages, number, {}, without=wrong)
    key, value = _name_in(own, advised[1]), Typed(advised[2])
    if isinstance(error, UnknownSetting):
        return change_stage(stages, number, {key: value}, without=[path])
    if any(is_in(key, name) for name in own):
        return change_stage(stages, number, {key: value})
    return error.fix


def _name_in(own: Mapping[str, Any], path: str) -> str:
    """The name of a setting in a stage, which calls `train.trainable` `trainable`."""
    short = path.removeprefix("train.")
    return short if short in own and path not in own else path


def _drop(node: Any, path: str) -> Any:
    """Nested settings without what stands at a dotted path; dotted keys are looked up, too."""
    if isinstance(node, list):
        place, _, rest = path.partition(".")
        return [_drop(item, rest) if str(at) == place else item for at, item in enumerate(node)]
    if not isinstance(node, Mapping):
        return node
    return {
        key: _drop(value, path.removeprefix(f"{key}.")) if is_in(path, key) else value
        for key, value in node.items()
        if key != path
    }
