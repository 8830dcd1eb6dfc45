"""What a config may name: classes and functions that declare themselves parts of a slot.

A slot is named like the config key under which its parts stand: `pattern`, `noise`, `heads`,
`cells`, `norm`.

    @part_of("noise")
    class TokenMask(Noise): ...

Nothing else can be a `_target_`: a checkpoint of a stranger names parts and numbers, it never runs
code of its own choice.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from typing import Any, TypeVar

Declared = TypeVar("Declared", bound=Callable[..., Any])

_SLOT = "__plmctl_slot__"  # of a base class or a part: its slot
_PART = "__plmctl_part__"  # of a part alone: what configs may name
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
    """Decorate a class, or a function that makes a part, which a config may name as `_target_` in
    the slot `name`.

    The declaration is not inherited: a subclass says for itself that it is a part.
    """

    def declare(made: Declared) -> Declared:
        setattr(made, _SLOT, name)
        setattr(made, _PART, name)
        return made

    return declare


def declared(candidate: Any) -> str | None:
    """The slot that a class or function declares itself a part of, or None."""
    if not (inspect.isclass(candidate) or inspect.isfunction(candidate)):
        return None
    found = vars(candidate).get(_PART)
    return found if isinstance(found, str) else None


def slot_of(name: str, annotation: Any) -> str:
    """The slot of a parameter: what its annotated class says, otherwise its own name."""
    found = getattr(_made(annotation), _SLOT, None)
    return found if isinstance(found, str) else name


def misfit(candidate: Callable[..., Any], annotation: Any) -> str:
    """Why `candidate` cannot be what `annotation` asks for, as words behind "must be"; empty
    where it can be.
    """
    wanted = _made(annotation)
    if not inspect.isclass(wanted) or getattr(wanted, "_is_protocol", False):
        return ""
    made = candidate if inspect.isclass(candidate) else _returned(candidate)
    return (
        ""
        if not inspect.isclass(made) or issubclass(made, wanted)
        else f"a part of the type {wanted.__name__}"
    )


def asks_for_factory(annotation: Any) -> bool:
    """Whether the values of `annotation` make parts: `Callable[..., Cell]`, also inside of a
    mapping.
    """
    if typing.get_origin(annotation) is Callable:
        return hasattr(_made(annotation), _SLOT)
    return any(map(asks_for_factory, typing.get_args(annotation)))


def _returned(function: Callable[..., Any]) -> Any:
    """What a function says it returns; None where that names something imported for type
    checkers only.
    """
    try:
        return typing.get_type_hints(function).get("return")
    except NameError:
        return None


def _made(annotation: Any) -> Any:
    """The class that a value of `annotation` is or makes: `Cell` of `Mapping[str, Callable[...,
    Cell]]`; None without one.
    """
    if inspect.isclass(annotation) and not typing.get_args(annotation):
        return None if annotation in _OPEN else annotation
    inner = typing.get_args(annotation)
    if typing.get_origin(annotation) is typing.Annotated:
        inner = inner[:1]
    found = [made for made in map(_made, reversed(inner)) if made is not None]
    return found[0] if found else None
