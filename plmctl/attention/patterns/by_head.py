"""One pattern for each group of heads."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_

import torch
from torch import Tensor

from plmctl.attention.patterns.base import ComposedPattern, Full, MaskMod, Pattern
from plmctl.attention.patterns.offsets import Sight
from plmctl.core.batch import Seq
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.core.values import Count


@part_of("pattern")
class ByHead(ComposedPattern):
    """`parts[h // (num_heads / n)]` of n patterns: as many neighbouring heads see by each of them
    (Child et al., 2019, arXiv:1904.10509, sec. 4.3, "multi-head"; Beltagy et al., 2020,
    arXiv:2004.05150, sec. 3.1, "different dilation configurations per head").
    """

    operator = or_

    def __init__(self, *, parts: Sequence[Pattern], num_heads: Count) -> None:
        if not parts or num_heads % len(parts):
            allowed = f"as many patterns as divide size.num_heads={num_heads}"
            raise ConfigError("pattern.parts", f"{len(parts)} patterns", allowed)
        for part in parts:
            if part.heads != 1 or part.layers != 1:
                allowed = "patterns that are the same in all heads and layers"
                raise ConfigError("pattern.parts", type(part).__name__, allowed)
        super().__init__(parts=parts)
        self.heads = num_heads

    def with_parts(self, parts: Sequence[Pattern]) -> Pattern:
        return ByHead(parts=parts, num_heads=self.heads)

    def of_head(self, head: int) -> Pattern:
        return self.parts[head * len(self.parts) // self.heads]

    def simplify(self, seq: Seq) -> Pattern:
        parts = [part.simplify(seq) for part in self.parts]
        full = all(isinstance(part, Full) for part in parts)
        return Full() if full else self.with_parts(parts)

    def sight(self, segment: int | None = None) -> Sight:
        seen = [self.of_head(head).sight(segment) for head in range(self.heads)]
        offsets = tuple(sight.together() for sight in seen)
        return Sight(offsets, exact=all(sight.exact for sight in seen))

    def predicate(self, seq: Seq) -> MaskMod:
        seen = [part.predicate(seq) for part in self.parts]

        def allowed(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
            group = torch.div(h * len(seen), self.heads, rounding_mode="floor")
            parts = ((group == number) & see(b, h, q, k) for number, see in enumerate(seen))
            return reduce(or_, parts)

        return allowed
