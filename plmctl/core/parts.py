"""Parts: the classes and functions that declare themselves parts of a slot, which a config may
name.

A slot is named like the config key under which its parts stand: `pattern`, `noise`, `heads`,
`cells`, `norm`.

    @part_of("noise")
    class TokenMask(Noise): ...

Nothing else can be a `_target_`: a downloaded checkpoint names parts and numbers, and never runs
other code.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

# {setting that names a file: a function that refuses a missing one}, `opens` of a part
Opens = Mapping[str, Callable[[str | None], object]]
Declared = TypeVar("Declared", bound=Callable[..., Any])

_SLOT = "__plmctl_slot__"  # attribute of a base class or a part: its slot
_PART = "__plmctl_part__"  # attribute of a part alone: configs may name it
# slots whose parts stand at the config key of another: `task=` asks for a task, or for a probe
KEYS = {"probe": "task"}
_OPEN = (Any, object, type(None), str, int, float, bool)  # annotations that name no class of parts


def base_of(name: str) -> Callable[[Declared], Declared]:
    """Decorate the base class of the parts of a slot: a parameter annotated with it takes parts
    of that slot.
    """

    def declare(base: Declared) -> Declared:
        setattr(base, _SLOT, name)
        return base

    return declare


def part_of(name: str) -> Callable[[Declared], Declared]:
    """Decorate a class, or a function that makes a part, so that a config may name it as `_target_`
    in the slot `name`.

    The declaration is not inherited: a subclass needs its own.
    """

    def declare(part: Declared) -> Declared:
        setattr(part, _SLOT, name)
        setattr(part, _PART, name)
        return part

    return declare


def fits(candidate: Callable[..., Any], slot: str) -> bool:
    """Whether a part may stand at the config key of a slot."""
    own = declared(candidate)
    return own is not None and KEYS.get(own, own) == slot


def declared(candidate: Any) -> str | None:
    """The slot that a class or function declares itself a part of, or None."""
    if not (inspect.isclass(candidate) or inspect.isfunction(candidate)):
        return None
    slot = vars(candidate).get(_PART)
    return slot if isinstance(slot, str) else None


def target_of(part: Any) -> str:
    """The name of a class or function as `_target_` has it."""
    return f"{part.__module__}.{part.__qualname__}"


def slot_of(name: str, annotation: Any) -> str:
    """The slot of a parameter: that of its annotated class, otherwise its own name."""
    slot = getattr(_class_of(annotation), _SLOT, None)
    return slot if isinstance(slot, str) else name


def misfit(candidate: Callable[..., Any], annotation: Any) -> str:
    """Why `candidate` does not fit `annotation`, in words that follow "must be"; "" if it fits."""
    wanted = _class_of(annotation)
    if not inspect.isclass(wanted) or getattr(wanted, "_is_protocol", False):
        return ""
    given = candidate if inspect.isclass(candidate) else _returned(candidate)
    return (
        ""
        if not inspect.isclass(given) or issubclass(given, wanted)
        else f"a part of the type {wanted.__name__}"
    )


def asks_for_factory(annotation: Any) -> bool:
    """Whether the values of `annotation` make parts: `Callable[..., Cell]`, also inside of a
    mapping.
    """
    if typing.get_origin(annotation) is Callable:
        return hasattr(_class_of(annotation), _SLOT)
    return any(map(asks_for_factory, typing.get_args(annotation)))


def _returned(function: Callable[..., Any]) -> Any:
    """The annotated return type of a function; None if it names something imported only for type
    checkers.
    """
    try:
        return typing.get_type_hints(function).get("return")
    except NameError:
        return None


def _class_of(annotation: Any) -> Any:
    """The class that a value of `annotation` is or makes: `Cell` of `Mapping[str, Callable[...,
    Cell]]`; None without one.
    """
    if inspect.isclass(annotation) and not typing.get_args(annotation):
        return None if annotation in _OPEN else annotation
    inner = typing.get_args(annotation)
    if typing.get_origin(annotation) is typing.Annotated:
        inner = inner[:1]
    found = [made for made in map(_class_of, reversed(inner)) if made is not None]
    return found[0] if found else None
