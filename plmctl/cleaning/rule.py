"""The interface of rules: each looks at one text, and drops it, changes it or leaves it alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

from plmctl.cleaning.text_view import TextView
from plmctl.core.parts import base_of


class Drop(NamedTuple):
    """The reason of a rule to drop a document: the number that it measured, and its bound."""

    reason: str
    value: float = 0.0
    bound: float = 0.0


@base_of("rule")
class TextRule(ABC):
    """A rule for documents. It is small, knows no other rule, and has its thresholds as settings;
    a threshold of None is not looked at.

    Example:
        @part_of("rule")
        class Titled(TextRule):
            def apply(self, view):
                return view if view.text.istitle() else Drop("no title")
    """

    @abstractmethod
    def apply(self, view: TextView) -> TextView | Drop:
        """The text as it may stay (the same object, if nothing changes), or why it is dropped."""


def find_beyond(
    reason: str, value: float, *, least: float | None = None, most: float | None = None
) -> Drop | None:
    """The drop for a number that is below `least` or above `most`."""
    if least is not None and value < least:
        return Drop(reason, value, least)
    if most is not None and value > most:
        return Drop(reason, value, most)
    return None
