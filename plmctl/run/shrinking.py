"""A trained model with some of its layers: what a student begins as (Sanh et al., 2019,
arXiv:1910.01108, sec. 3; Shleifer and Rush, 2020, arXiv:2010.13002), or what is fine-tuned
without its upper half.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

from torch import Tensor

from plmctl.core.errors import ConfigError, nearest
from plmctl.nn import layout as grammar
from plmctl.nn.layout import Step

if TYPE_CHECKING:
    from plmctl.run.loading import Source

CHOICES = ("first", "last", "spread")
# a name of CHOICES, or with a number behind it ("first3"), or numbers of layers from 0
Layers = str | Sequence[int]


def shrink_source(source: Source, layers: Layers | Mapping[str, Layers]) -> Source:
    """`source` with only these of its layers, in this order; embeddings, final norms and heads
    stay.

    `layers`: of a model with several stacks {stack: its layers}, the others stay whole. ConfigError
    names the layers that are not there.
    """
    config, tensors = copy.deepcopy(source.config), dict(source.tensors)
    stacks = dict(_stacks(config["model"]))
    if not stacks:
        raise ConfigError(
            "kept_layers",
            layers,
            f"null: no layers can be taken out of {config['model']['_target_'].rpartition('.')[2]}",
        )
    for name, wanted in _by_stack(layers, stacks).items():
        place, node = stacks[name]
        steps = _layers(node)
        path = f"kept_layers.{name}" if isinstance(layers, Mapping) else "kept_layers"
        chosen = picked(wanted, len(steps), path=path)
        node["layout"], moved = _layout(steps, chosen, path), _moved(steps, chosen)
        node.pop("share", None)  # the layout says it
        if node.get("by_layer"):
            node["by_layer"] = _values(node["by_layer"], moved)
        tensors = _renamed(tensors, f"backbone.{place}.blocks", moved)
        config["size"] = {**config["size"], "num_layers": len(chosen)}
    return replace(source, config=config, tensors=tensors)


def picked(layers: Layers, number: int, *, path: str = "kept_layers") -> list[int]:
    """The numbers, from 0, of the layers that are meant of `number`: half of them by a name, or as
    many as stand behind it.

    `first`: the lowest (Sun et al., 2019, arXiv:1908.09355); `last`: the highest; `spread`: k of n
    from end to end, `round(i (n - 1) / (k - 1))` for i = 0 .. k - 1: of twelve 0, 2, 4, 7, 9, 11
    (DistilBERT's released script).
    """
    there = f"its layers are 0 to {number - 1}"
    if not isinstance(layers, str):
        chosen = [int(layer) for layer in layers]
        wrong = [layer for layer in chosen if not 0 <= layer < number]
        if wrong or not chosen:
            told = (
                f"there is no layer {', '.join(map(str, wrong))}" if wrong else "at least one layer"
            )
            raise ConfigError(
                path,
                chosen,
                f"{told}; {there}, counted from 0",
                fix=f"{path}={picked('spread', number)}".replace(" ", ""),
            )
        return chosen
    found = re.fullmatch(r"([a-z]+)([0-9]*)", layers)
    if found is None or found[1] not in CHOICES:
        allowed = (
            f"numbers of layers like [0,2], or one of {', '.join(CHOICES)}, with how many: spread3"
        )
        raise ConfigError(
            path, layers, f"{allowed}{nearest(layers.rstrip('0123456789'), CHOICES)}; {there}"
        )
    count = int(found[2] or max(1, number // 2))
    if not 1 <= count <= number:
        raise ConfigError(
            path,
            layers,
            f"1 to {number} layers; {there}",
            fix=f"{path}={found[1]}{max(1, number // 2)}",
        )
    return {
        "first": list(range(count)),
        "last": list(range(number - count, number)),
        "spread": [round(place * (number - 1) / max(1, count - 1)) for place in range(count)],
    }[found[1]]


def _stacks(
    node: Mapping[str, Any], path: str = ""
) -> Iterator[tuple[str, tuple[str, dict[str, Any]]]]:
    """(name, (path inside the model, its node)) of every stack; that of an encoder-decoder's
    decoder is called decoder.
    """
    for key, child in node.items():
        if isinstance(child, dict) and "layout" in child:
            yield path.rpartition(".")[2] or key, (f"{path}.{key}".lstrip("."), child)
        elif isinstance(child, Mapping):
            yield from _stacks(child, f"{path}.{key}".lstrip("."))


def _by_stack(
    layers: Layers | Mapping[str, Layers], stacks: Mapping[str, Any]
) -> Mapping[str, Layers]:
    if isinstance(layers, Mapping):
        for name in layers:
            if name not in stacks:
                told = (
                    f"there is no stack '{name}'{nearest(name, stacks)};"
                    f" there is {' and '.join(stacks)}"
                )
                fix = f"kept_layers={_shown(layers[name])}" if len(stacks) == 1 else ""
                raise ConfigError(f"kept_layers.{name}", layers[name], told, fix=fix)
        return layers
    if len(stacks) > 1:
        fix = f"'kept_layers={{{list(stacks)[-1]}:{_shown(layers)}}}'"
        raise ConfigError(
            "kept_layers", layers, f"of which stack? There are {' and '.join(stacks)}", fix=fix
        )
    return {next(iter(stacks)): layers}


def _shown(layers: Layers) -> str:
    """As the command line takes them."""
    return layers if isinstance(layers, str) else f"[{','.join(map(str, layers))}]"


def _layers(node: Mapping[str, Any]) -> list[list[Step]]:
    """The steps of every layer of a stack."""
    return [
        [step for _, step in layer]
        for layer in grammar.split_layers(grammar.parse(node["layout"], share=node.get("share")))
    ]


def _layout(steps: Sequence[Sequence[Step]], chosen: Sequence[int], path: str) -> str:
    """The layout of the chosen layers: own weights for each, or one for all where all have the
    same.
    """
    copies = {tuple((step.letter, step.copy) for step in layer) for layer in steps}
    if len(copies) < len(steps):
        if len(copies) > 1:
            raise ConfigError(
                path, list(chosen), "null: some of its layers share their weights, and some do not"
            )
        return f"{grammar.spell_layer(steps[0])}@{len(chosen)}"
    groups = [grammar.spell_layer(steps[layer]) for layer in chosen]
    return " ".join(f"{group}*{len(list(same))}" for group, same in groupby(groups))


def _moved(
    steps: Sequence[Sequence[Step]], chosen: Sequence[int]
) -> list[tuple[tuple[str, int], tuple[str, int]]]:
    """((letter, copy) of the teacher, (letter, copy) of the student) of every cell of the chosen
    layers.
    """
    made: dict[str, int] = {}
    moved = []
    shared = len({tuple((step.letter, step.copy) for step in layer) for layer in steps}) < len(
        steps
    )
    for layer in chosen[:1] if shared else chosen:
        for step in steps[layer]:
            moved.append(((step.letter, step.copy), (step.letter, made.get(step.letter, 0))))
            made[step.letter] = made.get(step.letter, 0) + 1
    return moved


def _values(
    by_layer: Mapping[str, Mapping[str, Sequence[Any]]],
    moved: Sequence[tuple[tuple[str, int], tuple[str, int]]],
) -> dict[str, dict[str, list[Any]]]:
    """Settings by layer of the cells that moved."""
    return {
        letter: {
            name: [values[copy_] for (moved_letter, copy_), _ in moved if moved_letter == letter]
            for name, values in settings.items()
        }
        for letter, settings in by_layer.items()
        if any(moved_letter == letter for (moved_letter, _), _ in moved)
    }


def _renamed(
    tensors: Mapping[str, Tensor],
    prefix: str,
    moved: Sequence[tuple[tuple[str, int], tuple[str, int]]],
) -> dict[str, Tensor]:
    """`tensors` with those blocks of a stack that moved, under their new numbers, and everything
    outside of its blocks.
    """
    found = {name: tensor for name, tensor in tensors.items() if not name.startswith(f"{prefix}.")}
    for (letter, copy_), (_, place) in moved:
        old, new = f"{prefix}.{letter}.{copy_}.", f"{prefix}.{letter}.{place}."
        found |= {
            new + name.removeprefix(old): tensor
            for name, tensor in tensors.items()
            if name.startswith(old)
        }
    return found
