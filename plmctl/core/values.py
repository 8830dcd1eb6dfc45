"""Values checked by annotations: a number of the right type and range, or a ValueError that says
what is allowed.
"""

from __future__ import annotations

import functools
import inspect
import math
import re
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Union

from plmctl.core.errors import nearest


class Rule(NamedTuple):
    """The condition on values of an `Annotated[int, Rule(...)]` besides their type."""

    holds: Callable[[Any], bool]
    words: str  # "more than 0"


Whole = Annotated[int, Rule(lambda n: n >= 0, "0 or more")]
Count = Annotated[int, Rule(lambda n: n > 0, "1 or more")]
# rows that a model reads at once, and processes or threads: with more, memory ends first
Batch = Annotated[Count, Rule(lambda n: n <= 1 << 20, "at most 1048576")]
Processes = Annotated[Count, Rule(lambda n: n <= 1 << 12, "at most 4096")]
Number = Annotated[float, Rule(lambda x: x >= 0, "0 or more")]
Amount = Annotated[float, Rule(lambda x: x > 0, "more than 0")]
Rate = Annotated[float, Rule(lambda x: 0 <= x <= 1, "between 0 and 1")]
DropoutRate = Annotated[float, Rule(lambda x: 0 <= x < 1, "0 or more, and less than 1")]
# the first and the last of some numbers
FromTo = Annotated[
    tuple[Count, ...],
    Rule(lambda ends: not ends or (len(ends) == 2 and ends[0] <= ends[1]), "[first,last] or []"),
]
Share = Annotated[float, Rule(lambda x: 0 < x <= 1, "more than 0, at most 1")]


# words of other programs for a word of ours
SYNONYMS = {"gpu": "cuda", "float32": "fp32", "float16": "fp16", "half": "fp16", "bfloat16": "bf16"}

HINT = re.compile(r"( \(did you mean '(.+)'\?\))$")  # with its name
NO_MAPPING = "must be a mapping of names to values"


def fit(value: Any, annotation: Any) -> Any:
    """Convert `value` to `annotation` (1e4 becomes the int 10000); a ValueError names what is
    allowed.

    It handles scalars, Literal, unions, paths, lists and mappings of these, and TypedDicts, which
    may have further keys; other annotations accept any part but no plain scalar.
    """
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _fit_rules(fit(value, inner[0]), inner[1:])
    if origin is Literal:
        return _fit_literal(value, inner)
    if origin in (Union, types.UnionType):
        return _fit_union(value, inner)
    if annotation in _SCALARS or annotation is None:
        return _SCALARS[annotation if annotation is not None else type(None)](value)
    if (origin or annotation) in (list, tuple, Sequence, Collection, Iterable):
        return _fit_list(value, inner[0] if inner else Any)
    if typing.is_typeddict(annotation):
        return _fit_record(value, annotation)
    if (origin or annotation) in (dict, Mapping):
        if not isinstance(value, Mapping):
            raise ValueError(NO_MAPPING)
        named = bool(inner) and inner[0] is str
        return {
            _fit_key(key) if named else key: _fit_item(key, item, inner[1] if inner else Any)
            for key, item in value.items()
        }
    # a callable makes a part: that of the type that it returns
    part = inner[-1] if origin is Callable and inner else annotation
    is_part = origin is Callable or (inspect.isclass(annotation) and annotation is not object)
    if is_part and (value is None or isinstance(value, (str, int, float, list, tuple))):
        kind = f" ({part.__name__})" if inspect.isclass(part) else ""
        raise ValueError(f"must be a part{kind}, a mapping with _target_")
    return value


def describe_values(annotation: Any) -> str:
    """The values that an annotation allows, "a whole number or null"; empty if all values are
    allowed.
    """
    if typing.get_origin(annotation) in (Union, types.UnionType):
        choices = sorted(typing.get_args(annotation), key=lambda choice: choice is str)
        kinds = [_describe_kind(choice) for choice in choices]
        rules = [", ".join(_list_rules(choice)) for choice in choices]
        words = [
            f"{kind} ({rule})" if rule else kind for kind, rule in zip(kinds, rules, strict=True)
        ]
        return " or ".join(dict.fromkeys(words)) if all(kinds) else ""
    kind = _describe_kind(annotation)
    return ", ".join([kind, *_list_rules(annotation)]) if kind else ""


def _describe_kind(annotation: Any) -> str:
    try:
        fit(object(), annotation)
    except ValueError as error:
        return str(error).removeprefix("must be ")
    return ""


def _list_rules(annotation: Any) -> list[str]:
    metadata = getattr(annotation, "__metadata__", ())
    return [rule.words for rule in metadata if isinstance(rule, Rule)]


def takes_mapping(annotation: Any) -> bool:
    """Whether a plain mapping, which is not a part, may be a value of this annotation."""
    inner = (
        typing.get_args(annotation)
        if typing.get_origin(annotation) in (Union, types.UnionType)
        else (annotation,)
    )
    return any((typing.get_origin(each) or each) in (dict, Mapping, Any, object) for each in inner)


def item_of(annotation: Any) -> Any:
    """The annotation of the items of a list or of the values of a mapping; Any, if it says none."""
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        return item_of(inner[0])
    if origin in (Union, types.UnionType):
        items = [item for item in map(item_of, inner) if item is not Any]
        return items[0] if len(items) == 1 else Any
    if origin in (list, tuple, dict, Mapping, Sequence, Collection, Iterable) and inner:
        return inner[1 if origin in (dict, Mapping) else 0]
    return Any


class _OutOfRange(ValueError):
    """A value of the right type outside its range."""


class _InItem(ValueError):
    """An item of a mapping of the right kind is wrong; the message begins with its key."""


def _fit_key(key: Any) -> str:
    """A name: YAML reads 4 as a number, and an arm may be called so."""
    if isinstance(key, str):
        return key
    if isinstance(key, (int, float)) and not isinstance(key, bool):
        return str(key)
    raise _InItem(f"{key}: must be a name, in quotes")


def _fit_rules(value: Any, rules: tuple[Any, ...]) -> Any:
    for rule in rules:
        if isinstance(rule, Rule) and not rule.holds(value):
            raise _OutOfRange(f"must be {rule.words}")
    return value


def _fit_literal(value: Any, allowed: tuple[Any, ...]) -> Any:
    for choice in allowed:
        if type(choice) is type(value) and choice == value:
            return value
    words = [str(choice).lower() if isinstance(choice, bool) else str(choice) for choice in allowed]
    near = "" if value in words else nearest(SYNONYMS.get(str(value), str(value)), words)
    raise ValueError(f"must be one of {', '.join(words)}{near}")


def _fit_union(value: Any, choices: tuple[Any, ...]) -> Any:
    exact = [choice for choice in choices if inspect.isclass(choice) and type(value) is choice]
    problems: list[ValueError] = []
    # str takes every scalar: last
    for choice in [*exact, *sorted(choices, key=lambda choice: choice is str)]:
        try:
            return fit(value, choice)
        except ValueError as error:
            problems.append(error)
    for problem in problems:
        if isinstance(problem, _OutOfRange | _InItem):
            raise problem  # the other alternatives of the union do not matter
    parts = [HINT.split(str(problem).removeprefix("must be ")) for problem in problems]
    hint = next((part[1] for part in parts if len(part) > 1), "")
    raise ValueError(f"must be {' or '.join(dict.fromkeys(part[0] for part in parts))}{hint}")


def _fit_record(value: Any, kind: Any) -> dict[str, Any]:
    """The keys of a TypedDict; keys marked NotRequired may be absent, and other keys may be
    present.
    """
    if not isinstance(value, Mapping):
        raise ValueError(NO_MAPPING)
    wanted, required = _keys(kind)
    if missing := [key for key in required if key not in value]:
        raise ValueError(f"must have '{missing[0]}'")
    return {
        key: _fit_item(key, item, wanted[key]) if key in wanted else item
        for key, item in value.items()
    }


@functools.cache
def _keys(kind: Any) -> tuple[dict[str, Any], list[str]]:
    """({key: its annotation} of a TypedDict, the required keys)."""
    hints = typing.get_type_hints(kind, include_extras=True)
    optional = {key for key, hint in hints.items() if typing.get_origin(hint) is typing.NotRequired}
    wanted = {
        key: typing.get_args(hint)[0] if key in optional else hint for key, hint in hints.items()
    }
    return wanted, [key for key in hints if key not in optional]


def _fit_item(key: Any, value: Any, annotation: Any) -> Any:
    """`fit` with an error that names `key`, or a key inside."""
    try:
        return fit(value, annotation)
    except ValueError as error:
        inner = str(error)
        raise _InItem(
            f"'{key}.{inner[1:]}" if isinstance(error, _InItem) else f"'{key}' {inner}"
        ) from None


def _fit_list(value: Any, inner: Any) -> Any:
    if isinstance(value, str) or not isinstance(value, (list, tuple)):
        raise ValueError("must be a list, like [a,b]")
    if typing.is_typeddict(inner):  # for records, the message names the type
        return [_fit_item(place, item, inner) for place, item in enumerate(value)]
    return [fit(item, inner) for item in value]


def _fit_int(value: Any) -> int:
    whole = isinstance(value, float) and value.is_integer()  # train.steps=1e4
    if not whole and (isinstance(value, bool) or not isinstance(value, int)):
        raise ValueError("must be a whole number")
    if not -(1 << 63) <= value < 1 << 63:  # the range of the libraries below
        raise _OutOfRange("must be less than 2**63")
    return int(value)


def _fit_float(value: Any) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and not math.isnan(value):
        return float(value)
    raise ValueError("must be a number")


def _fit_bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise ValueError("must be true or false")


def _fit_str(value: Any) -> str:
    if isinstance(value, (str, int, float)) and not isinstance(value, bool):
        return str(value)
    raise ValueError("must be text")


def _fit_none(value: Any) -> None:
    if value is not None:
        raise ValueError("must be null")


def _fit_path(value: Any) -> Path:
    return value if isinstance(value, Path) else Path(_fit_str(value))


_SCALARS: dict[Any, Callable[[Any], Any]] = {
    int: _fit_int,
    float: _fit_float,
    bool: _fit_bool,
    str: _fit_str,
    type(None): _fit_none,
    Path: _fit_path,
    Any: lambda value: value,
}
