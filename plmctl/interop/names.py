"""Reversible rules between the names (and layouts) of our tensors and those of a published
checkpoint.

A family states one table of rules; import reads it from right to left, export from left to right.
`{i}` in a name is the number of a layer, the same on both sides.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Tensors = dict[str, Tensor]
Weights = Mapping[str, Tensor]  # read only


@dataclass(frozen=True)
class NameRule:
    """Our tensor `ours` is `join` of their tensors `theirs`; `split` is its inverse."""

    ours: str
    theirs: tuple[str, ...]
    join: Callable[[Sequence[Tensor]], Tensor]
    split: Callable[[Tensor], Sequence[Tensor]]
    optional: bool = False  # members of the family may lack it
    note: str = ""  # a note of export on `theirs`, if it does not restore what import read
    follows: bool = False  # its rows are those of their tensor behind those of the rule before


def same(ours: str, theirs: str, *, optional: bool = False) -> NameRule:
    """Another name for the same tensor."""
    return NameRule(ours, (theirs,), lambda tensors: tensors[0], lambda tensor: [tensor], optional)


def fuse(ours: str, *theirs: str) -> NameRule:
    """Our rows are all of theirs, one tensor after the other (q, k, v)."""
    return NameRule(
        ours,
        theirs,
        lambda tensors: torch.cat(list(tensors)),
        lambda tensor: tensor.chunk(len(theirs)),
    )


def by_head(ours: str, theirs: str, *, heads: int) -> NameRule:
    """Their rows are (head, query or key or value, column), ours all queries, keys, then values."""
    return NameRule(
        ours,
        (theirs,),
        lambda tensors: tensors[0].unflatten(0, (heads, 3, -1)).transpose(0, 1).flatten(0, 2),
        lambda tensor: [tensor.unflatten(0, (3, heads, -1)).transpose(0, 1).flatten(0, 2)],
    )


def cut(theirs: str, *ours: str, optional: bool = False) -> list[NameRule]:
    """Their rows are all of ours, one tensor after the other, in equal parts (gate and up)."""
    return [
        NameRule(
            name,
            (theirs,),
            lambda tensors, place=place: tensors[0].chunk(len(ours))[place],  # type: ignore[misc]
            lambda tensor: [tensor],
            optional,
            follows=place > 0,
        )
        for place, name in enumerate(ours)
    ]


def transpose(ours: str, theirs: str) -> NameRule:
    """They store a linear map as [in, out] (GPT-2's Conv1D, TensorFlow's kernels)."""
    return NameRule(ours, (theirs,), lambda tensors: tensors[0].T, lambda tensor: [tensor.T])


def skip_rows(ours: str, theirs: str, *, rows: int) -> NameRule:
    """Their table begins with `rows` rows that no token uses; ours omits them, and export writes
    zeros.
    """
    return NameRule(
        ours,
        (theirs,),
        lambda tensors: tensors[0][rows:],
        lambda tensor: [torch.cat([tensor.new_zeros(rows, *tensor.shape[1:]), tensor])],
        note=f"its first {rows} rows, which no token uses, are zeros",
    )


def take_rows(ours: str, theirs: str, *, rows: int, spare: int) -> NameRule:
    """Our table is the first `rows` rows of theirs, which has `spare` more that no token uses."""
    return NameRule(
        ours,
        (theirs,),
        lambda tensors: tensors[0][:rows],
        lambda tensor: [torch.cat([tensor, tensor.new_zeros(spare, *tensor.shape[1:])])],
        note=f"its last {spare} rows, which no token uses, are zeros",
    )


def linear(
    ours: str, *theirs: str, weight: Callable[..., NameRule] = same, bias: bool = True
) -> list[NameRule]:
    """The rules for `.weight` and `.bias` of a module; several of theirs are fused."""
    weight = fuse if len(theirs) > 1 else weight
    rules = [weight(f"{ours}.weight", *(f"{name}.weight" for name in theirs))]
    other = fuse if len(theirs) > 1 else same
    return [*rules, other(f"{ours}.bias", *(f"{name}.bias" for name in theirs))] if bias else rules


def maps(ours: str, theirs: str, names: Mapping[str, str], **how: Any) -> list[NameRule]:
    """The rules of modules side by side, `{our name: theirs}`; several of theirs, with spaces
    between, are fused. `how` as in `linear`.
    """
    return [
        rule
        for own, found in names.items()
        for rule in linear(f"{ours}.{own}", *(f"{theirs}.{name}" for name in found.split()), **how)
    ]


def to_ours(tensors: Weights, rules: Iterable[NameRule]) -> tuple[Tensors, list[str]]:
    """(our tensors, their names without a rule)."""
    ours_by_name: Tensors = {}
    unused = dict.fromkeys(tensors)
    for rule in rules:
        for layer in _layers(rule.theirs[0], tensors):
            names = [_fill(name, layer) for name in rule.theirs]
            if all(name in tensors for name in names):
                ours_by_name[_fill(rule.ours, layer)] = rule.join(
                    [tensors[name] for name in names]
                ).contiguous()
                for name in names:
                    unused.pop(name, None)
    return ours_by_name, list(unused)


def to_theirs(tensors: Weights, rules: Iterable[NameRule]) -> tuple[Tensors, list[str]]:
    """(their tensors, where possible views of ours; our names without a rule)."""
    theirs_by_name: Tensors = {}
    unused = dict.fromkeys(tensors)
    for rule in rules:
        for layer in _layers(rule.ours, tensors):
            name = _fill(rule.ours, layer)
            parts = rule.split(tensors[name])
            for theirs, part in zip(rule.theirs, parts, strict=False):
                filled = _fill(theirs, layer)
                before = [theirs_by_name[filled]] if rule.follows else []
                theirs_by_name[filled] = torch.cat([*before, part]) if before else part
            unused.pop(name, None)
    return theirs_by_name, list(unused)


def find_missing(tensors: Weights, rules: Iterable[NameRule], *, num_layers: int) -> list[str]:
    """Their names that a member with `num_layers` layers has and `tensors` lacks."""
    names = dict.fromkeys(name for rule in rules if not rule.optional for name in rule.theirs)
    # with more layers than tensors, at least one is missing
    layers = [str(layer) for layer in range(min(num_layers, len(tensors) + 1))]
    filled = [_fill(name, layer) for name in names for layer in (layers if "{i}" in name else [""])]
    return [name for name in filled if name not in tensors]


def _fill(template: str, layer: str) -> str:
    return template.replace("{i}", layer)


def _layers(template: str, names: Iterable[str]) -> list[str]:
    """The layer numbers of the names that match the template; [""] for a template without a
    layer.
    """
    pattern = re.compile(re.escape(template).replace(re.escape("{i}"), "([0-9]+)"))
    matches = [match for name in names if (match := pattern.fullmatch(name))]
    return sorted(
        {match[1] if pattern.groups else "" for match in matches},
        key=lambda layer: (len(layer), layer),
    )
