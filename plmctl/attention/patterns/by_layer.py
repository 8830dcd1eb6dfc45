"""One pattern for each layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from operator import or_

from torch import Tensor

from plmctl.attention.patterns.base import MaskMod, Pattern
from plmctl.attention.patterns.offsets import Sight
from plmctl.core.batch import Seq
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of


@part_of("pattern")
class ByLayer(Pattern):
    """`parts[layer](b, h, q, k)`: windows and gaps that grow with depth (Beltagy et al., 2020,
    arXiv:2004.05150, sec. 4.1 and table 12).

    Together the layers see what any of them sees. Where layers differ in the window alone, `Window`
    takes a list.
    """

    def __init__(self, *, parts: Sequence[Pattern]) -> None:
        if len(parts) < 2 or any(part.layers > 1 for part in parts):
            allowed = "a pattern for each layer, two or more, none of which tells layers apart"
            raise ConfigError("pattern.parts", [type(part).__name__ for part in parts], allowed)
        self.parts, self.layers = list(parts), len(parts)
        self.heads = max(part.heads for part in parts)
        self.static = all(part.static for part in parts)
        self._take_fields(self.parts)

    def change_parts(self, change: Callable[[Pattern], Pattern]) -> Pattern:
        return ByLayer(parts=[change(part) for part in self.parts])

    def at_layer(self, layer: int) -> Pattern:
        return self.parts[layer]

    def sight(self, segment: int | None = None) -> Sight:
        return reduce(or_, (part.sight(segment) for part in self.parts))

    def blocks(self, seq: Seq, size: int) -> Tensor:
        return reduce(or_, (part.blocks(seq, size) for part in self.parts))

    def find_global(self, seq: Seq) -> Tensor | None:
        marked = [part.find_global(seq) for part in self.parts]
        named = [tokens for tokens in marked if tokens is not None]
        return reduce(or_, named) if named else None

    def predicate(self, seq: Seq) -> MaskMod:
        allowed = [part.predicate(seq) for part in self.parts]
        return lambda b, h, q, k: reduce(or_, (f(b, h, q, k) for f in allowed))
