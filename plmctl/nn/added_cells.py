"""Cells that a system adds to the layers of a plain model, whatever its depth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor

from plmctl.core.errors import ConfigError, nearest
from plmctl.nn.layout import Step, spell_layer, split_layers, split_rounds

PLACES = ("replaces", "before", "after")
PLACES_ALLOWED = f"one of {', '.join(PLACES)}: <a cell>, with layers: [from, to], and last: {{}}"
Adds = Mapping[str, Any]  # {letter: where it is added, by names as in `add_cells`}
Copy = tuple[str, int]  # the letter and the number of a cell
# the steps of a layer that run together, each with its number in the plain layout
Round = list[tuple[Step, Copy | None]]


@dataclass(frozen=True)
class Extended:
    """The steps of a layout with added cells.

    Args:
        steps: in the order in which they run.
        origins: {cell: the one of the plain layout that it is, or that it replaces}.
    """

    steps: list[Step]
    origins: Mapping[Copy, Copy] = field(default_factory=dict)


def add_cells(steps: list[Step], adds: Adds) -> Extended:
    """`steps` with further cells.

        {x: {replaces: f, layers: [0.42, 1]}, m: {before: x, layers: [0.5, 1]}}
        af*4 -> af ax amx*2;  af*12 -> af*5 ax amx*6

    Args:
        steps: The steps of the plain layout.
        adds: {letter: {`replaces`, `before` or `after`: the cell there, layers: [from, to]}}.
            `from` and `to` are shares of the depth. The first layer of n is floor(from n), counted
            from 0; the last is the one before floor(to n), but at least one layer is chosen. [at]
            is the layer floor(at n) alone. Where cells run together, `before` and `after` mean all
            of them.

    Raises:
        ConfigError: An unknown cell, a letter that is used already, or a position that cannot be
        read.
    """
    layers: list[list[Round]] = [
        [
            [(step, (step.letter, step.copy)) for _, step in together]
            for together in split_rounds(own)
        ]
        for own in split_layers(steps)
    ]
    _refuse_plain(adds, layers)
    # replacements first: other cells may be added before or after them
    for letter, node in sorted(adds.items(), key=lambda item: "replaces" not in item[1]):
        place, anchor = _find_place(letter, node, layers)
        start, stop = _find_range(letter, node, len(layers))
        for number in range(start, stop):
            layers[number] = _change(layers[number], letter, place, anchor)
    return _number(layers)


def _refuse_plain(adds: Adds, layers: Sequence[Sequence[Round]]) -> None:
    """ConfigError for a letter without a mapping that says where it is added."""
    last = [step.letter for layer in layers for part in layer for step, _ in part][-1]
    for letter, node in adds.items():
        if not isinstance(node, Mapping):
            path, fix = f"model.stack.adds.{letter}", f"{{{letter}:{{replaces:{last}}}}}"
            allowed = f"where the cell stands: {PLACES_ALLOWED}"
            raise ConfigError(path, node, allowed, fix=f"model.stack.adds={fix}")


def _find_place(
    letter: str, node: Mapping[str, Any], layers: Sequence[Sequence[Round]]
) -> tuple[str, str]:
    """(how it is added, the letter of the cell there)."""
    path = f"model.stack.adds.{letter}"
    given = [place for place in PLACES if place in node]
    if len(given) != 1 or set(node) - {*PLACES, "layers", "last"}:
        raise ConfigError(path, dict(node), PLACES_ALLOWED)
    spelled = [spell_layer([step for part in layer for step, _ in part]) for layer in layers]
    letters = dict.fromkeys(step.letter for layer in layers for part in layer for step, _ in part)
    layout = " ".join(spelled)
    if letter in letters:
        allowed = f"a letter that the layout has not: {layout}"
        raise ConfigError(path, dict(node), allowed, fix="model.stack.adds=null")
    anchor = str(node[given[0]])
    if anchor not in letters:
        allowed = f"a cell of the layout {layout}{nearest(anchor, letters)}"
        fix = f"{path}.{given[0]}={next(reversed(letters))}"
        raise ConfigError(f"{path}.{given[0]}", anchor, allowed, fix=fix)
    return given[0], anchor


def _find_range(letter: str, node: Mapping[str, Any], number: int) -> tuple[int, int]:
    shares = node.get("layers", [0, 1])
    numbers = isinstance(shares, list | tuple) and all(isinstance(s, int | float) for s in shares)
    if numbers and len(shares) == 1 and 0 <= shares[0] < 1:
        return int(shares[0] * number), int(shares[0] * number) + 1
    if not numbers or len(shares) != 2 or not 0 <= shares[0] < shares[1] <= 1:
        allowed = "[from, to] or [at], shares of the depth from 0 up to 1, such as [0.5, 1]"
        raise ConfigError(f"model.stack.adds.{letter}.layers", shares, allowed)
    stop = max(1, int(shares[1] * number))
    return min(int(shares[0] * number), stop - 1), stop


def _change(layer: list[Round], letter: str, place: str, anchor: str) -> list[Round]:
    """A layer with the new cell, whose copy is that of the cell there."""
    changed: list[Round] = []
    for together in layer:
        found = [step for step, _ in together if step.letter == anchor]
        if place == "replaces":
            changed.append(
                [
                    (replace(step, letter=letter) if step in found else step, origin)
                    for step, origin in together
                ]
            )
            continue
        new: list[Round] = [
            [(Step(letter, step.copy, ends=False), None)] for step in found[:1]
        ]  # fmt: skip
        changed += [*new, together] if place == "before" else [together, *new]
    return changed


def _number(layers: Sequence[Sequence[Round]]) -> Extended:
    """The steps with their copies counted anew, and the origins."""
    numbers: dict[str, dict[int, int]] = {}
    steps: list[Step] = []
    origins: dict[Copy, Copy] = {}
    for layer in layers:
        for step, origin in (pair for together in layer for pair in together):
            # a cell that ran several times still shares its weights
            known = numbers.setdefault(step.letter, {})
            copy = known.setdefault(step.copy, len(known))
            steps.append(replace(step, copy=copy, ends=False))
            if origin:
                origins[step.letter, copy] = origin
        steps[-1] = replace(steps[-1], ends=True)
    return Extended(steps, origins)


def rename_plain(
    tensors: Mapping[str, Tensor],
    origins: Mapping[Copy, Copy],
    continues: Mapping[str, str],
    *,
    stack: str,
) -> dict[str, Tensor]:
    """The `tensors` of a model with the plain layout, under the names that they have with added
    cells. A cell that replaces another has its block.

    Args:
        tensors: The tensors of the whole model.
        origins: The origins of `Extended`.
        continues: {letter: the part of such a cell that goes on as the other one}.
        stack: The prefix of the names of the stack's blocks, `backbone.stack.blocks`.
    """
    old = tuple(f"{stack}.{letter}." for letter, _ in origins.values())
    renamed = {name: tensor for name, tensor in tensors.items() if not name.startswith(old)}
    for (letter, copy), (plain, number) in origins.items():
        start = f"{stack}.{plain}.{number}."
        inner = f"cell.{continues[letter]}." if letter != plain and continues[letter] else "cell."
        for name in (name for name in tensors if name.startswith(start)):
            rest = name.removeprefix(start)
            rest = inner + rest.removeprefix("cell.") if rest.startswith("cell.") else rest
            renamed[f"{stack}.{letter}.{copy}.{rest}"] = tensors[name]
    return renamed
