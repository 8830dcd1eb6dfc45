"""How the settings of a model differ from those of a published family, in words; layouts that say
the same count as equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plmctl.core.locate import locate, parameters
from plmctl.nn.layout import count_copies, parse, spell_layer

# no matter of structure
FREE = frozenset(
    {
        "about",
        "dropout",
        "initializer",
        "chunk",
        "num_classes",
        "prior",
        "tied",
        "max_length",
        "max_targets",
        "classifier",
        "memory",
        "reuse",
    }
)


def spell_layouts(node: Any) -> Any:
    """The node with `af*2` for every layout of cells that says the same otherwise: `afaf`."""
    if not isinstance(node, Mapping):
        return node
    spelled = {key: spell_layouts(child) for key, child in node.items()}
    if isinstance(layout := spelled.get("layout"), str) and "cells" in spelled:
        spelled["layout"] = _spell_layout(layout)
    return spelled


def fold_layers(node: Any, width: int) -> Any:
    """The node with settings of cells instead of equal ones `by_layer`, if all heads together
    are as wide as the stream.
    """
    if not isinstance(node, Mapping):
        return node
    folded = {key: fold_layers(child, width) for key, child in node.items()}
    by_layer, cells = dict(folded.get("by_layer") or {}), dict(folded.get("cells") or {})
    for letter, settings in (folded.get("by_layer") or {}).items():
        if letter in cells and all(len(set(values)) == 1 for values in settings.values()):
            cell = {**cells[letter], **{name: values[0] for name, values in settings.items()}}
            own = cell.get("head_width")
            if own is None or own * cell.get("num_heads", 0) == width:
                cells[letter] = cell | ({} if own is None else {"head_width": None})
                del by_layer[letter]
    return folded | ({"by_layer": by_layer, "cells": cells} if folded.get("by_layer") else {})


def _spell_layout(layout: str) -> str:
    steps = parse(layout)
    if len(steps) > sum(count_copies(steps).values()):  # some run more than once
        return layout
    for size in range(1, len(steps) + 1):
        times, group = len(steps) // size, spell_layer(steps[:size])
        if group * times == spell_layer(steps):
            return f"{group}*{times}"
    return layout


def list_differences(ours: Any, published: Any, path: str) -> list[str]:
    """The leaves in which two nodes differ; omitted parameters have the default of the
    signature.
    """
    if isinstance(ours, Mapping) and isinstance(published, Mapping):
        if ours.get("_target_") != published.get("_target_"):
            return [f"{path}={_format_value(ours)} (published: {_format_value(published)})"]
        ours, published = _with_defaults(ours), _with_defaults(published)
        keys = [key for key in dict.fromkeys([*ours, *published]) if key not in FREE]
        return [
            line
            for key in keys
            for line in (
                list_differences(ours.get(key), published[key], f"{path}.{key}".lstrip("."))
                if key in published
                else [f"{path}.{key}={_format_value(ours[key])} (it has no published name)"]
            )
        ]
    return (
        []
        if ours == published
        else [f"{path}={_format_value(ours)} (published: {_format_value(published)})"]
    )


def _with_defaults(node: Mapping[str, Any]) -> dict[str, Any]:
    try:
        known = parameters(locate(node["_target_"])) if "_target_" in node else {}
    except ValueError:  # a plug-in's part: no family has it anyway
        known = {}
    return {name: p.default for name, p in known.items() if p.default is not p.empty} | dict(node)


def _format_value(node: Any) -> str:
    target = node.get("_target_") if isinstance(node, Mapping) else None
    return str(target).rpartition(".")[2] if target else str(node)
