"""A trained model with some of its layers: what a student begins as (Sanh et al., 2019,
arXiv:1910.01108, sec. 3; Shleifer and Rush, 2020, arXiv:2010.13002), or what is fine-tuned
without its upper half.
"""

from __future__ import annotations

import copy
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor

from plmctl.artifacts.kept_patterns import keep_layers, pick_values
from plmctl.config.walks import select
from plmctl.core.errors import ConfigError, nearest
from plmctl.core.spelling import spell_setting
from plmctl.nn.added_cells import add_cells
from plmctl.nn.layout import Step, count_copies, parse, spell_layer, split_layers

if TYPE_CHECKING:
    from plmctl.artifacts.loading import Source

CHOICES = ("first", "last", "spread")
# a name of CHOICES, or with a number behind it ("first3"), or numbers of layers from 0
Layers = str | Sequence[int]


class KeptCell(NamedTuple):
    """A cell of a layer that stays: its letter in the layout, and the numbers of its copy in the
    teacher and in the student.
    """

    letter: str
    old: int
    new: int


def shrink_source(source: Source, layers: Layers | Mapping[str, Layers]) -> Source:
    """`source` with only these of its layers, in this order; embeddings, final norms and heads
    stay.

    Args:
        layers: The layers, or {stack: its layers} for several stacks; the others stay whole.

    Raises:
        ConfigError: For layers that do not exist; it names them.
    """
    config, tensors = copy.deepcopy(source.config), dict(source.tensors)
    stacks = dict(find_stacks(config["model"]))
    if not stacks:
        model = config["model"]["_target_"].rpartition(".")[2]
        allowed = f"null: no layers can be taken out of {model}"
        raise ConfigError("kept_layers", layers, allowed)
    for name, wanted in _by_stack(layers, stacks).items():
        place, node = stacks[name]
        steps = _spell_out(node)
        teacher = [[step for _, step in layer] for layer in split_layers(steps)]
        path = f"kept_layers.{name}" if isinstance(layers, Mapping) else "kept_layers"
        chosen = pick_layers(wanted, len(teacher), path=path)
        sharing = {tuple((step.letter, step.copy) for step in layer) for layer in teacher}
        if 1 < len(sharing) < len(teacher):
            allowed = "null: some of its layers share their weights, and some do not"
            raise ConfigError(path, chosen, allowed)
        kept = [teacher[layer] for layer in chosen]
        if len(sharing) < len(teacher):  # one layer that runs several times
            kept, node["layout"] = kept[:1], f"{spell_layer(kept[0])}@{len(chosen)}"
        else:
            groups = groupby(map(spell_layer, kept))
            node["layout"] = " ".join(f"{group}*{len(list(same))}" for group, same in groups)
        node.pop("share", None)  # the layout says it
        cells = _number_cells(kept)
        if node.get("by_layer"):
            node["by_layer"] = _select_values(node["by_layer"], cells)
        tensors = _rename(tensors, f"backbone.{place}.blocks", cells)
        config["size"] = {**config["size"], "num_layers": len(chosen)}
        above = select(config["model"], place.rpartition(".")[0]) or {}
        of_pattern = above if "pattern" in above else config
        of_pattern["pattern"] = keep_layers(of_pattern["pattern"], chosen, source.plugins)
        of_position = above if "position" in above else config
        position = pick_values(of_position["position"], chosen, len(teacher))
        if position.get("num_layers") == len(teacher):
            position["num_layers"] = len(chosen)
            tensors = _pick_tables(tensors, f"{place.rpartition('.')[0]}.position", chosen)
        of_position["position"] = position
        residual = node.get("residual") or {}
        if residual.get("first_norm") is False and chosen[0] != 0:
            node["residual"] = {**residual, "first_norm": True}
    return replace(source, config=config, tensors=tensors)


def _pick_tables(
    tensors: Mapping[str, Tensor], path: str, chosen: Sequence[int]
) -> dict[str, Tensor]:
    """The tensors with those of the layers `chosen` of a position scheme that has some for each."""
    own = re.compile(rf"(backbone\.{re.escape(path.lstrip('.'))}\.\w+\.)(\d+)(\..+)")
    found = {name: own.fullmatch(name) for name in tensors}
    kept = {name: tensor for name, tensor in tensors.items() if not found[name]}
    for number, layer in enumerate(chosen):
        for name, match in found.items():
            if match and int(match[2]) == layer:
                kept[f"{match[1]}{number}{match[3]}"] = tensors[name]
    return kept


def pick_layers(layers: Layers, number: int, *, path: str = "kept_layers") -> list[int]:
    """The numbers, from 0, of the layers that are meant of `number`: half of them by a name, or as
    many as stand behind it.

    `first`: the lowest (Sun et al., 2019, arXiv:1908.09355); `last`: the highest; `spread`: k of n
    from end to end, `round(i (n - 1) / (k - 1))` for i = 0 .. k - 1. For twelve layers these are 0,
    2, 4, 7, 9, 11 (DistilBERT's released script).
    """
    numbers, half = f"its layers are 0 to {number - 1}", max(1, number // 2)
    if not isinstance(layers, str):
        chosen = [int(layer) for layer in layers]
        wrong = ", ".join(str(layer) for layer in chosen if not 0 <= layer < number)
        if wrong or not chosen:
            what = f"there is no layer {wrong}" if wrong else "at least one layer"
            fix = f"{path}={_spell(pick_layers('spread', number))}"
            raise ConfigError(path, chosen, f"{what}; {numbers}, counted from 0", fix=fix)
        return chosen
    match = re.fullmatch(r"([a-z]+)([0-9]*)", layers)
    if match is None or match[1] not in CHOICES:
        hint = nearest(layers.rstrip("0123456789"), CHOICES)
        names = f"one of {', '.join(CHOICES)}, with how many: spread3{hint}"
        raise ConfigError(path, layers, f"numbers of layers like [0,2], or {names}; {numbers}")
    count = int(match[2] or half)
    if not 1 <= count <= number:
        fix = f"{path}={match[1]}{half}"
        raise ConfigError(path, layers, f"1 to {number} layers; {numbers}", fix=fix)
    return {
        "first": list(range(count)),
        "last": list(range(number - count, number)),
        "spread": [round(place * (number - 1) / max(1, count - 1)) for place in range(count)],
    }[match[1]]


def _spell_out(node: dict[str, Any]) -> list[Step]:
    """The steps of a stack; the cells that `adds` describes stand in its node as all others."""
    adds = node.pop("adds", None) or {}
    steps = add_cells(parse(node["layout"], share=node.get("share")), adds).steps
    copies = count_copies(steps)
    for letter in (letter for letter in adds if adds[letter].get("last")):
        usual = {name: node["cells"][letter].get(name) for name in adds[letter]["last"]}
        own = {
            name: [*[usual[name]] * (copies[letter] - 1), value]
            for name, value in adds[letter]["last"].items()
        }
        node["by_layer"] = {**(node.get("by_layer") or {}), letter: own}
    return steps


def find_stacks(
    node: Mapping[str, Any], path: str = ""
) -> Iterator[tuple[str, tuple[str, dict[str, Any]]]]:
    """(name, (path inside the model, its node)) of every stack; that of an encoder-decoder's
    decoder is called decoder.
    """
    for key, child in node.items():
        inner = f"{path}.{key}".lstrip(".")
        if isinstance(child, dict) and "layout" in child:
            yield path.rpartition(".")[2] or key, (inner, child)
        elif isinstance(child, Mapping):
            yield from find_stacks(child, inner)


def _by_stack(
    layers: Layers | Mapping[str, Layers], stacks: Mapping[str, Any]
) -> Mapping[str, Layers]:
    """{stack: its layers}, all of which exist."""
    names = " and ".join(stacks)
    if isinstance(layers, Mapping):
        for name in layers:
            if name not in stacks:
                what = f"there is no stack '{name}'{nearest(name, stacks)}; there is {names}"
                fix = spell_setting("kept_layers", layers[name]) if len(stacks) == 1 else ""
                raise ConfigError(f"kept_layers.{name}", layers[name], what, fix=fix)
        return layers
    if len(stacks) > 1:
        fix = spell_setting("kept_layers", {list(stacks)[-1]: layers})
        raise ConfigError("kept_layers", layers, f"needs the name of a stack: {names}", fix=fix)
    return {next(iter(stacks)): layers}


def _spell(layers: Layers) -> str:
    """As the command line takes them."""
    return layers if isinstance(layers, str) else f"[{','.join(map(str, layers))}]"


def _number_cells(layers: Sequence[Sequence[Step]]) -> list[KeptCell]:
    """Every cell of these layers, numbered by letter in the student."""
    counts: Counter[str] = Counter()
    cells = []
    for step in (step for layer in layers for step in layer):
        cells.append(KeptCell(step.letter, step.copy, counts[step.letter]))
        counts[step.letter] += 1
    return cells


def _select_values(
    by_layer: Mapping[str, Mapping[str, Sequence[Any]]], cells: Sequence[KeptCell]
) -> dict[str, dict[str, list[Any]]]:
    """{letter: {setting: its value for each cell}} of the cells that stay."""
    copies: dict[str, list[int]] = {}
    for cell in cells:
        copies.setdefault(cell.letter, []).append(cell.old)
    return {
        letter: {name: [values[i] for i in copies[letter]] for name, values in settings.items()}
        for letter, settings in by_layer.items()
        if letter in copies
    }


def _rename(
    tensors: Mapping[str, Tensor], prefix: str, cells: Sequence[KeptCell]
) -> dict[str, Tensor]:
    """`tensors` with the cells of a stack that stay, under their new numbers, and everything that
    is not of this stack.
    """
    kept = {name: tensor for name, tensor in tensors.items() if not name.startswith(f"{prefix}.")}
    for letter, old_copy, new_copy in cells:
        old, new = f"{prefix}.{letter}.{old_copy}.", f"{prefix}.{letter}.{new_copy}."
        for name, tensor in tensors.items():
            if name.startswith(old):
                kept[new + name.removeprefix(old)] = tensor
    return kept
