"""Walks through nested settings: plain values, or the records and parts of a spec."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def select(tree: Any, path: str) -> Any:
    """The value at a dotted key (`train.stages.0`); None where there is nothing."""
    for key in path.split("."):
        if isinstance(tree, Mapping):
            tree = tree.get(key)
        elif isinstance(tree, (list, tuple)) and key.isdigit() and int(key) < len(tree):
            tree = tree[int(key)]
        else:
            return None
    return tree


def leaves(node: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted key, value) of everything in nested mappings that is no mapping, or an empty one."""
    if isinstance(node, Mapping) and node:
        for key, value in node.items():
            yield from leaves(value, f"{path}.{key}" if path else str(key))
    else:
        yield path, node


def scalars_in(node: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted key, value) of everything in nested mappings and lists; an empty one is a value."""
    if isinstance(node, (Mapping, list, tuple)) and node:
        for key, value in node.items() if isinstance(node, Mapping) else enumerate(node):
            yield from scalars_in(value, f"{path}.{key}" if path else str(key))
    else:
        yield path, node


def paths(tree: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Every dotted key of nested mappings, those of groups, too."""
    for key, value in tree.items():
        yield f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from paths(value, f"{prefix}{key}.")


def parts_in(node: Any, path: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(dotted key, part) of every part in nested mappings that is inside of no other part."""
    if isinstance(node, Mapping) and "_target_" in node:
        yield path, node
    elif isinstance(node, Mapping):
        for key, value in node.items():
            yield from parts_in(value, f"{path}.{key}" if path else str(key))


def targets_in(node: Any) -> Iterator[str]:
    """Every `_target_` in nested mappings and lists."""
    if isinstance(node, Mapping):
        if isinstance(target := node.get("_target_"), str):
            yield target
        node = list(node.values())
    if isinstance(node, list):
        for child in node:
            yield from targets_in(child)


def references_in(node: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """(dotted key, text) of every text in nested mappings and lists that refers to something."""
    if isinstance(node, str) and "${" in node:
        yield path, node
    items = node.items() if isinstance(node, Mapping) else ()
    for key, value in enumerate(node) if isinstance(node, list) else items:
        yield from references_in(value, f"{path}.{key}" if path else str(key))
