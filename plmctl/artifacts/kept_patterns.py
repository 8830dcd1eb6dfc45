"""The pattern of a model with some of its layers, where it differs from layer to layer."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from plmctl.attention.patterns.base import Pattern
from plmctl.attention.patterns.key import make_key
from plmctl.config.build import build
from plmctl.core.errors import UsageError

SOME = "plmctl.attention.patterns.by_layer.take_layers"


def keep_layers(node: Any, chosen: Sequence[int], plugins: Sequence[str] = ()) -> Any:
    """The node of a pattern for the layers `chosen` of it, counted from 0; `node` itself where it
    is the same in all layers.

    It keeps its kind, with shorter lists, where that says the same: only such patterns are
    published ones (Longformer's windows).
    """
    pattern = _build(node, plugins)
    if pattern.layers == 1:
        return node
    wanted = [make_key(pattern.at_layer(layer)) for layer in chosen]
    for shorter in _shorten(node, chosen, pattern.layers, plugins):
        with contextlib.suppress(UsageError):
            kept = _build(shorter, plugins)
            if [make_key(kept.at_layer(layer)) for layer in range(len(chosen))] == wanted:
                return shorter
    return {"_target_": SOME, "part": node, "layers": list(chosen)}


def pick_values(node: Mapping[str, Any], chosen: Sequence[int], layers: int) -> dict[str, Any]:
    """The node whose lists of one value for each of `layers` have those of the layers `chosen`."""
    return {
        name: [value[layer] for layer in chosen]
        if isinstance(value, list) and len(value) == layers
        else value
        for name, value in node.items()
    }


def _shorten(
    node: Mapping[str, Any], chosen: Sequence[int], layers: int, plugins: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """The node with shorter lists of its own, or of its parts."""
    yield pick_values(node, chosen, layers)
    if isinstance(node.get("parts"), list):
        yield {**node, "parts": [keep_layers(part, chosen, plugins) for part in node["parts"]]}


def _build(node: Any, plugins: Sequence[str]) -> Pattern:
    pattern: Pattern = build(node, plugins=plugins, path="pattern")
    return pattern
