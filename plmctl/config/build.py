"""From a config node to an object: `check` binds every signature and builds nothing, `build`
instantiates.

A node is a mapping with `_target_: package.module.Name`; its other keys are the keyword arguments.
The target must declare itself a part (`plmctl.core.parts`) of the slot in which the node stands.
The config path names the slot; inside of a part the parameter does. `_partial_: true` makes a
factory, and so does a parameter that asks for one (a cell of a stack). Values that the config
cannot know (the vocabulary, a width) are handed in as `given`: they fill parameters of their names
at every depth. `_given_: {width: 64}` replaces such numbers for this node and the nodes inside (a
smaller network).
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from plmctl.config.spec import Part, Record, thaw
from plmctl.config.walks import scalars_in, targets_in
from plmctl.core.errors import ConfigError, UsageError, find_alike, nearest, raise_all
from plmctl.core.locate import (
    Misspelt,
    Undeclared,
    Unnamed,
    explain_own_part,
    find_module,
    is_library,
    locate,
    parameters,
    takes_any,
)
from plmctl.core.parts import asks_for_factory, declared, fits, misfit, slot_of, target_of
from plmctl.core.spelling import spell_setting
from plmctl.core.values import HINT, NO_MAPPING, fit, item_of

_WORDS = {"true": True, "false": False, "null": None}
MARKS = ("_target_", "_partial_", "_given_")


MISSING = "???"  # how part files write that a value must be given
OF_MIX = ("weight", "on")  # settings of an objective that belong to the mix of all
# slots that hold several parts side by side, each under its name
SEVERAL = (
    *("noise", "objective", "heads", "peft", "stabiliser", "pruning"),
    *("constraint", "perturb", "rule"),
)


def build(
    node: Any, given: Mapping[str, Any] | None = None, plugins: Sequence[str] = (), *, path: str
) -> Any:
    """The object that `node` describes; all errors of all parts are raised together, each with its
    config path.

    Args:
        node: A part, or a list or mapping of parts of one slot.
        given: {parameter name: value} of values that the config cannot know.
        path: The config path of the node, which says its slot.
    """
    node, given = plain(node), given or {}
    raise_all(check(node, given, plugins, path=path))
    errors: list[UsageError] = []
    built = _build(node, given, plugins, Any, path, errors)
    raise_all(errors)
    return built


def check(
    node: Any, given: Iterable[str] | None, plugins: Sequence[str] = (), *, path: str
) -> list[UsageError]:
    """Every problem that building `node` would meet in names and types; `given=None`: anything
    may still be filled in.
    """
    return _check(plain(node), given, plugins, slot_at(path), Any, path)


def slot_at(path: str) -> str:
    """The slot at a config path: its last key, or the one above where several parts stand side
    by side (`noise.token_mask`).
    """
    *above, last = path.split(".")
    return above[-1] if above and above[-1] in SEVERAL else last


def plain(node: Any) -> Any:
    """A part of a spec as plain dicts and lists."""
    if isinstance(node, (Part, Record, tuple)):
        return thaw(node)
    return node


def class_of(node: Mapping[str, Any], plugins: Sequence[str] = ()) -> Any:
    """The class, or the function, that the node of a part names.

    Raises:
        ValueError: There is no such part.
    """
    return locate(node.get("_target_"), plugins)


def parameters_of(node: Any, plugins: Sequence[str] = ()) -> Mapping[str, inspect.Parameter] | None:
    """The parameters of the part that a node names; None for no part, or one that is not found,
    which `check` reports.
    """
    if not (isinstance(node, Mapping) and "_target_" in node):
        return None
    try:
        return parameters(locate(node["_target_"], plugins))
    except ValueError:
        return None


def check_parts(node: Any, plugins: Sequence[str] = (), *, path: str = "") -> list[UsageError]:
    """Every problem with names and types in the parts of nested mappings. Problems that only
    building can find are not looked for.

    Args:
        path: The config path of the node.
    """
    if not isinstance(node, Mapping):
        return []
    if "_target_" not in node:
        return [
            error
            for key, child in node.items()
            for error in check_parts(child, plugins, path=_join(path, key))
        ]
    of_mix = OF_MIX if path.startswith("objective.") else ()
    own = {key: value for key, value in node.items() if key not in of_mix}
    return check(own, None, plugins, path=path)


def entry(node: Any, path: str = "objective") -> tuple[dict[str, Any], float, str | None]:
    """An `objective.<name>` node without the two keys that belong to the mix: (node, weight,
    source it looks at).
    """
    part = dict(plain(node))
    weight, source = part.pop("weight", 1.0), part.pop("on", None)
    errors: list[UsageError] = []
    if isinstance(weight, bool) or not isinstance(weight, (int, float)):
        errors.append(ConfigError(f"{path}.weight", weight, "must be a number"))
    if not (source is None or isinstance(source, str)):
        errors.append(
            ConfigError(f"{path}.on", source, "must be the name of a data source, or null for all")
        )
    raise_all(errors)
    return part, float(weight), source


def _build(
    node: Any,
    given: Mapping[str, Any],
    plugins: Sequence[str],
    annotation: Any,
    path: str,
    errors: list[UsageError],
) -> Any:
    """The object of a plain node that a parameter of this annotation takes."""
    if isinstance(node, list):
        return [
            _build(child, given, plugins, annotation, _join(path, place), errors)
            for place, child in enumerate(node)
        ]
    if not isinstance(node, dict):
        return node
    before, given = len(errors), {**given, **(node.get("_given_") or {})}
    part = locate(node["_target_"], plugins) if "_target_" in node else None
    known = parameters(part) if part else {}
    values = {}
    for key, child in node.items():
        if key not in MARKS:
            inside = known[key].annotation if key in known else Any if part else annotation
            values[key] = _build(child, given, plugins, inside, _join(path, key), errors)
    if part is None or len(errors) > before:
        return values
    arguments = {name: given[name] for name in known if name in given}
    for key, value in values.items():
        arguments[key] = fit(value, known[key].annotation) if key in known else value
    # a built part that it is given stands elsewhere in the config
    own = {name for name in known if name in values or _is_plain(given.get(name))}
    if node.get("_partial_", asks_for_factory(annotation)):
        factory = _Factory(part, **arguments)
        factory.path, factory.own = path, own
        return factory
    try:
        return part(**arguments)
    except ConfigError as error:
        errors.append(place_mistake(error, path, own))
        return None


TAKEN = re.compile(r"(?:^|\.)cells\.(\w)$")  # the path of a cell, and its letter


class Unknown(ConfigError):
    """A setting that does not exist; `meant` is the existing one that is spelt alike, or ""."""

    def __init__(
        self, path: str, value: object, allowed: str, *, meant: str = "", fix: str = ""
    ) -> None:
        self.meant = meant
        super().__init__(path, value, allowed, fix=fix)


class UnknownSetting(Unknown):
    """A setting that a part does not have; `known` are the settings that it has."""

    def __init__(
        self, path: str, value: object, part: str, known: Collection[str], *, fix: str = ""
    ) -> None:
        self.known = tuple(known)
        name = path.rpartition(".")[2]
        takes = f"it takes {', '.join(known)}" if known else "it takes nothing"
        allowed = f"{part} has no '{name}'{nearest(name, known)}; {takes}"
        meant = "".join(find_alike(name, known))
        super().__init__(path, value, allowed, meant=meant, fix=fix)


class _Placed(ConfigError):
    """A mistake of a part whose config path is known; the part knows its parameter alone."""


class _Factory(functools.partial[Any]):
    """A factory of a part, whose mistakes name its path in the config."""

    path: str
    own: set[str]  # parameters of the part itself

    def __call__(self, /, *args: Any, **more: Any) -> Any:
        try:
            return super().__call__(*args, **more)
        except ConfigError as error:
            raise place_mistake(error, self.path, self.own) from None


def place_mistake(error: ConfigError, path: str, own: Collection[str]) -> ConfigError:
    """The mistake of a part that stands at `path` and has its `own` parameters there."""
    keys = error.path.split(".")
    place = next((at for at in reversed(range(len(keys))) if keys[at] in own), None)
    if isinstance(error, _Placed) or place is None:
        return error
    above, name = ".".join(keys[:place]), ".".join(keys[place:])

    def join(key: re.Match[str]) -> str:
        return _join(path, key[0]) if key[0] in own else key[0]

    fix = re.sub(r"(?<![\w.])\w+(?==)", join, error.fix)
    if above and keys[0] == path.partition(".")[0]:  # model.stack, where it is model.encoder.stack
        fix = re.sub(rf"(?<![\w.]){re.escape(above)}\.", f"{path}.", fix)
    return _Placed(_join(path, name), error.value, error.allowed, fix=fix)


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float, str))


def _check(
    node: Any,
    given: Iterable[str] | None,
    plugins: Sequence[str],
    slot: str,
    annotation: Any,
    path: str,
) -> list[UsageError]:
    """`check` of a plain node that a parameter of this annotation takes."""
    if not isinstance(node, (dict, list)):
        return []
    if isinstance(node, list) or "_target_" not in node:
        children = node.items() if isinstance(node, dict) else enumerate(node)
        return [
            error
            for key, child in children
            for error in _check(child, given, plugins, slot, annotation, _join(path, key))
        ]
    try:
        part = locate(node["_target_"], plugins)
    except ValueError as error:
        where, fix = _join(path, "_target_"), ""
        if isinstance(error, Misspelt) and error.meant:
            fix = f"{where}={error.meant}"
        if isinstance(error, Unnamed) and is_library(str(node["_target_"])):
            return [_refuse_library(node, slot, where)]
        if isinstance(error, Unnamed) and find_module(error.package):
            fix = f"--plugin {error.package}"
        if isinstance(error, Undeclared) and error.own:
            name = str(node["_target_"]).rpartition(".")[2]
            fix = f'@part_of("{slot}"), of plmctl.core.parts, above the definition of {name}'
        return [ConfigError(where, node["_target_"], str(error), fix=fix)]
    allowed = misfit(part, annotation)
    if not fits(part, slot):
        allowed = f"a part of the slot '{slot}', and this one is of '{declared(part)}'"
    if allowed:
        return [ConfigError(_join(path, "_target_"), node["_target_"], f"must be {allowed}")]
    given = given if given is None else {*given, *(node.get("_given_") or ())}
    partial = node.get("_partial_", asks_for_factory(annotation))
    names = None if given is None or partial else set(given)
    settings = {key: value for key, value in node.items() if key not in MARKS}
    known = parameters(part)
    errors: list[UsageError] = []
    for key, value in settings.items():
        inside = known[key].annotation if key in known else Any
        errors += _check(value, given, plugins, slot_of(key, inside), inside, _join(path, key))
    return errors + _check_arguments(part, settings, names, path)


def _refuse_library(node: Mapping[str, Any], slot: str, where: str) -> ConfigError:
    """The class of a library, which is no part, and how a file of one's own makes it one."""
    target = node["_target_"]
    own = [key for key in node if key not in MARKS]
    takes = ", ".join(["*", *own, "**more"] if own else ["**more"])
    made = explain_own_part(slot, f"def make({takes}): return {target}(...)")
    allowed = f"a class of a library is no part; {made}"
    return ConfigError(where, target, allowed, fix=f"--plugin own_parts {where}=own_parts.make")


def _check_arguments(
    part: Callable[..., Any], settings: dict[str, Any], given: set[str] | None, path: str
) -> list[UsageError]:
    """Every setting that the part does not take, and every missing one that it needs."""
    known, name = parameters(part), part.__qualname__
    of_mix = OF_MIX if path.startswith("objective.") else ()  # they are taken out of `settings`
    errors: list[UsageError] = []
    open_ended = takes_any(part)
    for key, value in settings.items():
        where = _join(path, key)
        if key not in known:
            names = (*known, *of_mix)
            fix = _rename(path, key, value, names, settings)
            errors += [] if open_ended else [UnknownSetting(where, value, name, names, fix=fix)]
        elif value == MISSING:
            errors.append(ConfigError(where, ..., "must be given", fix=f"{where}=..."))
        else:
            needed = known[key].default is inspect.Parameter.empty
            errors += _check_value(where, value, known[key].annotation, needed=needed)
    for key, parameter in known.items() if given is not None else ():
        if parameter.default is parameter.empty and key not in {*settings, *(given or ())}:
            where = _join(path, key)
            errors.append(ConfigError(where, ..., f"{name} needs it", fix=f"{where}=..."))
    unknown = [error for error in errors if isinstance(error, UnknownSetting)]
    taken = TAKEN.search(path) if len(unknown) > 1 and not _is_ours(part) else None
    return [_refuse_letter(part, path, taken[1], settings)] if taken else errors


def _check_value(
    where: str, value: Any, annotation: Any, *, needed: bool = False
) -> list[UsageError]:
    """The problems of a value with its annotation, and of plain values next to parts in a list or
    mapping; parts have been checked by themselves.

    Args:
        needed: Whether null counts as missing.
    """
    if not _is_plain(value) and any(targets_in(value)):
        if isinstance(value, Mapping) and "_target_" in value:
            return []
        items = value.items() if isinstance(value, Mapping) else enumerate(value)
        inside = item_of(annotation)
        return [
            error for key, item in items for error in _check_value(_join(where, key), item, inside)
        ]
    try:
        fit(value, annotation)
    except ValueError as error:
        if value is None and needed:
            return [ConfigError(where, ..., "must be given", fix=f"{where}=...")]
        return [refuse_value(where, value, annotation, error)]
    return []


def _is_ours(part: Callable[..., Any]) -> bool:
    return part.__module__.partition(".")[0] == __name__.partition(".")[0]


def _refuse_letter(
    part: Callable[..., Any], path: str, letter: str, settings: Mapping[str, Any]
) -> ConfigError:
    """A cell of a plug-in under the letter of another cell, whose settings it was merged with."""
    free = next(each for each in "qxyzvw" if each != letter)
    others = [key for key in settings if key not in parameters(part)]
    allowed = (
        f"a letter that no cell of the model has: '{letter}' is another cell's, whose settings"
        f" ({', '.join(others)}) {part.__qualname__} does not take"
    )
    cells = path.rpartition(".")[0]
    target = target_of(part)
    rounds = "af".replace(letter, free) if letter in "af" else f"{free}f"
    layout = f"{cells.rpartition('.')[0]}.layout='{rounds}*${{size.num_layers}}'"
    fix = f"{layout} '+{cells}.{free}={{_target_:{target},_partial_:true}}'"
    return ConfigError(path, target, allowed, fix=fix)


def _rename(
    path: str, key: str, value: Any, known: Collection[str], settings: Mapping[str, Any]
) -> str:
    """The setting of a part that is meant by an unknown one: spelt alike, or the only one of this
    name in the parts inside. It is empty without such a setting, or where its value is no single
    one.
    """
    near = find_alike(key, known)
    inside = [inner for inner, _ in scalars_in(settings) if inner.endswith(f".{key}")]
    meant = near or (inside if len(inside) == 1 else [])
    if not (meant and _is_plain(value)):
        return ""
    return spell_setting(_join(path, meant[0]), value)


def refuse_value(where: str, value: Any, annotation: Any, error: ValueError) -> ConfigError:
    """The error of a value that its annotation does not allow. If quotes make a text of a number or
    a word, the fix leaves them out; for one value of a list it writes a list, and for a list where
    one value is wanted its first.
    """
    fix = ""
    if isinstance(value, str):
        if meant := HINT.search(str(error)):
            fix = f"{where}={meant[2]}"
        bare = value.strip("'\"")
        with contextlib.suppress(ValueError):
            fit(_WORDS[bare] if bare in _WORDS else float(bare), annotation)
            fix = f"{where}={bare}"
    if isinstance(value, float) and math.isfinite(value):
        for whole in (round(value), math.ceil(value)):  # a part of a thing, where things count
            with contextlib.suppress(ValueError):
                fix = fix or f"{where}={fit(whole, annotation)}"
    is_list = isinstance(value, Sequence) and not isinstance(value, str)
    with contextlib.suppress(ValueError):  # several values, where one is wanted
        if is_list and value and fit(value[0], annotation) is not None:
            fix = spell_setting(where, value[0])
    mended = _mend_items(value if is_list else [value], annotation)
    if mended and not (is_list and mended == list(value)):
        fix = spell_setting(where, mended)
    with contextlib.suppress(ValueError):  # one value, where lists of them are wanted
        if not (fix or is_list or fit([[value]], annotation) is None):
            fix = spell_setting(where, [[value]])
    if value is not None and not fix and str(error) == NO_MAPPING:
        fix = f"{where}.<name>=..."
    return ConfigError(where, value, str(error), fix=fix)


def _mend_items(items: Sequence[Any], annotation: Any) -> list[Any]:
    """A list that is allowed, of the nearest item where one is not; nothing where none is near."""
    mended = []
    for item in items:
        try:
            fit([item], annotation)
            mended.append(item)
        except ValueError as error:
            mended += [meant[2]] if (meant := HINT.search(str(error))) else []
    with contextlib.suppress(ValueError):
        return mended if len(mended) == len(items) and fit(mended, annotation) else []
    return []


def _join(path: str, key: object) -> str:
    return f"{path}.{key}" if path else str(key)
