"""Problems that parts state themselves: what does not fit between a part and the parts around it.

Before any work starts, plmctl calls this method of every part that has it:

    def problems(self, path: str, around: PartContext) -> Iterable[ConfigError]: ...

`path` is the config path of the part.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from plmctl.core.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class PartContext:
    """The other parts of a pretraining, of one source where it has several.

    Args:
        backbone: The model without heads and weights.
        format: The rows; None where no rows are known yet.
        tokenizer: The kind of the tokenizer that will be trained; None for a trained one.
        paired: Whether the text may be parallel: a setting says so, or it is looked at later.
        begun: Whether trained weights bring the model.
    """

    backbone: Any
    format: Any = None
    tokenizer: str | None = None
    paired: bool = True
    begun: bool = False


@runtime_checkable
class HasProblems(Protocol):
    """A part that states its problems."""

    def problems(self, path: str, around: PartContext) -> Iterable[ConfigError]:
        """Everything around the part that does not fit to it."""
        ...


def find_problems(parts: Mapping[str, object], around: PartContext) -> Iterator[ConfigError]:
    """The problems of all parts, {config path: part}."""
    for path, part in parts.items():
        if isinstance(part, HasProblems):
            yield from part.problems(path, around)
