"""The stacks of a model with their patterns, and the length of its rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, cast

from torch import nn

from plmctl.artifacts.loading import Loaded
from plmctl.attention.patterns.base import Pattern
from plmctl.models.base import Backbone
from plmctl.nn.stack import Stack

USUAL = 512  # tokens of a row, where nothing limits it


class StackReader(Protocol):
    """A module with a stack and the pattern of its attention."""

    stack: Stack
    pattern: Pattern


def find_readers(backbone: Backbone) -> dict[str, StackReader]:
    """{its name, "" for the model itself: each part that runs a stack under a pattern}."""
    return {
        name: cast(StackReader, part)
        for name, part in backbone.named_modules()
        if isinstance(getattr(part, "stack", None), Stack)
        and isinstance(getattr(part, "pattern", None), Pattern)
    }


def find_length(loaded: Loaded, part: object) -> int:
    """Tokens of the longest row that a part of a model reads."""
    layout = loaded.config.get("format") or {}
    known = (getattr(part, "max_length", None), layout.get("max_length"))
    return min((length for length in known if length), default=USUAL)


def list_cells(stack: Stack) -> Iterator[tuple[int, nn.Module]]:
    """(the layer, counted from 1; the cell) for every step of a stack, in the order in which they
    run.
    """
    for layer, rounds in enumerate(stack.rounds, 1):
        for steps in rounds:
            for _, step in steps:
                yield layer, stack.block(step).cell
