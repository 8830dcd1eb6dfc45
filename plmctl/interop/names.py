"""Reversible rules between the names (and layouts) of our tensors and those of a published
checkpoint.

A family states one table of rules; import reads it from right to left, export from left to right.
`{i}` in a name stands for the number of a layer, the same on both sides.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

Tensors = dict[str, Tensor]


@dataclass(frozen=True)
class NameRule:
    """Our tensor `ours` is `join` of their tensors `theirs`; `split` is its inverse."""

    ours: str
    theirs: tuple[str, ...]
    join: Callable[[Sequence[Tensor]], Tensor]
    split: Callable[[Tensor], Sequence[Tensor]]
    optional: bool = False  # members of the family may lack it
    note: str = ""  # what export says of `theirs`, where it does not give back what import took


def same(ours: str, theirs: str, *, optional: bool = False) -> NameRule:
    """Another name for the same tensor."""
    return NameRule(ours, (theirs,), lambda found: found[0], lambda tensor: [tensor], optional)


def fused(ours: str, *theirs: str) -> NameRule:
    """Our rows are all of theirs, one tensor after the other (q, k, v)."""
    return NameRule(
        ours, theirs, lambda found: torch.cat(list(found)), lambda tensor: tensor.chunk(len(theirs))
    )


def transposed(ours: str, theirs: str) -> NameRule:
    """They store a linear map as [in, out] (GPT-2's Conv1D, TensorFlow's kernels)."""
    return NameRule(ours, (theirs,), lambda found: found[0].T, lambda tensor: [tensor.T])


def behind(ours: str, theirs: str, *, rows: int) -> NameRule:
    """Their table begins with `rows` rows that no token ever uses; ours leaves them out, export
    writes zeros.
    """
    return NameRule(
        ours,
        (theirs,),
        lambda found: found[0][rows:],
        lambda tensor: [torch.cat([tensor.new_zeros(rows, tensor.shape[1]), tensor])],
        note=f"its first {rows} rows, which no token uses, are zeros",
    )


def linear(
    ours: str, *theirs: str, weight: Callable[..., NameRule] = same, bias: bool = True
) -> list[NameRule]:
    """The rules for `.weight` and `.bias` of a module; several of theirs are fused."""
    weight = fused if len(theirs) > 1 else weight
    rules = [weight(f"{ours}.weight", *(f"{name}.weight" for name in theirs))]
    other = fused if len(theirs) > 1 else same
    return [*rules, other(f"{ours}.bias", *(f"{name}.bias" for name in theirs))] if bias else rules


def to_ours(tensors: Mapping[str, Tensor], rules: Iterable[NameRule]) -> tuple[Tensors, list[str]]:
    """(our tensors, names of theirs that no rule took)."""
    found: Tensors = {}
    left = dict.fromkeys(tensors)
    for rule in rules:
        for layer in _layers(rule.theirs[0], tensors):
            names = [_at(name, layer) for name in rule.theirs]
            if all(name in tensors for name in names):
                found[_at(rule.ours, layer)] = rule.join(
                    [tensors[name] for name in names]
                ).contiguous()
                for name in names:
                    left.pop(name, None)
    return found, list(left)


def to_theirs(
    tensors: Mapping[str, Tensor], rules: Iterable[NameRule]
) -> tuple[Tensors, list[str]]:
    """(their tensors, names of ours that no rule took)."""
    found: Tensors = {}
    left = dict.fromkeys(tensors)
    for rule in rules:
        for layer in _layers(rule.ours, tensors):
            name = _at(rule.ours, layer)
            parts = rule.split(tensors[name])
            found |= {
                _at(theirs, layer): part.contiguous().clone()
                for theirs, part in zip(rule.theirs, parts, strict=False)
            }
            left.pop(name, None)
    return found, list(left)


def find_missing(
    tensors: Mapping[str, Tensor], rules: Iterable[NameRule], *, num_layers: int
) -> list[str]:
    """Names of theirs that a member with `num_layers` layers has and `tensors` lacks."""
    names = dict.fromkeys(name for rule in rules if not rule.optional for name in rule.theirs)
    # of so many, one is missing at least
    layers = [str(layer) for layer in range(min(num_layers, len(tensors) + 1))]
    filled = [_at(name, layer) for name in names for layer in (layers if "{i}" in name else [""])]
    return [name for name in filled if name not in tensors]


def _at(template: str, layer: str) -> str:
    return template.replace("{i}", layer)


def _layers(template: str, names: Iterable[str]) -> list[str]:
    """The layer numbers for which `names` has the template filled in; [""] for a template
    without a layer that is there.
    """
    pattern = re.compile(re.escape(template).replace(re.escape("{i}"), "([0-9]+)"))
    found = [match for name in names if (match := pattern.fullmatch(name))]
    return sorted(
        {match[1] if pattern.groups else "" for match in found},
        key=lambda layer: (len(layer), layer),
    )
