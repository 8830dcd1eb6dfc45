"""The cells that a layout of a model uses."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any


def drop_unused_cells(node: Any) -> Any:
    """The node without the cells that its layout does not use, nor the system adds to it."""
    if not isinstance(node, Mapping):
        return node
    layout, cells = node.get("layout"), node.get("cells")
    if isinstance(layout, str) and isinstance(cells, Mapping):
        added, layout = node.get("adds") or (), re.sub(r"\$\{[^}]*\}", "", layout)
        used = {name: cell for name, cell in cells.items() if name in layout or name in added}
        node = {**node, "cells": used}
    return {key: drop_unused_cells(child) for key, child in node.items()}
