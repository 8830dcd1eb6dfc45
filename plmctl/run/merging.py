"""Settings of several files made one, on plain values: what Hydra makes of them, in less time.

Hydra's containers know types, references and flags, which part files have not: a merge of nested
mappings says the same. What it would not say the same is `UnusualMerge`, and left to Hydra.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

MISSING = "???"  # a value that is still to be given: it replaces none
_NAMES = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


class UnusualMerge(Exception):
    """Settings whose merge is more than one of nested mappings."""


def merge(tree: dict[str, Any], settings: Mapping[str, Any]) -> None:
    """Write settings into a tree, a mapping into a mapping, anything else in place of what is
    there.
    """
    for key, value in settings.items():
        old, of_several = tree.get(key), isinstance(value, (dict, list))
        if is_reference(old) and (of_several or value == MISSING):
            raise UnusualMerge  # with what it refers to
        if isinstance(value, dict) and isinstance(old, dict):
            merge(old, value)
        elif of_several and isinstance(old, (dict, list)) and type(value) is not type(old):
            raise UnusualMerge
        elif key not in tree or value != MISSING:
            tree[key] = copied(value)


def embed(package: str | None, settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """The settings below a dotted key."""
    if not package:
        return settings
    if not _NAMES.fullmatch(package):
        raise UnusualMerge
    for name in reversed(package.split(".")):
        settings = {name: settings}
    return settings


def assign(tree: dict[str, Any], key: str, value: Any) -> bool:
    """Give a setting that is there a plain value; False where it takes more than that, and
    nothing is changed.
    """
    if not _NAMES.fullmatch(key):
        return False
    *above, last = key.split(".")
    node: Any = tree
    for name in above:
        node = node.get(name) if isinstance(node, dict) else None
    if not isinstance(node, dict) or last not in node:
        return False
    old, whole = node[last], isinstance(value, list)
    if isinstance(old, dict) or (isinstance(old, list) and not whole):
        return False
    if not all(map(_is_plain, value if whole else [value])):
        return False
    node[last] = copied(value)
    return True


def is_reference(value: Any) -> bool:
    """Whether a value is worked out from others: `${size.width}`."""
    return isinstance(value, str) and "${" in value


def copied(value: Any) -> Any:
    """The same value, whose mappings and lists are its own."""
    if isinstance(value, dict):
        return {key: copied(inner) for key, inner in value.items()}
    return [copied(inner) for inner in value] if isinstance(value, list) else value


def _is_plain(value: Any) -> bool:
    scalar = value is None or isinstance(value, (bool, int, float, str))
    return scalar and value != MISSING and not is_reference(value)
