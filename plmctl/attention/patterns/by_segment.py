"""One pattern for each segment."""

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
class BySegment(Pattern):
    """`parts[segment[b, q]](b, h, q, k)`: the segment of a token decides what it sees.

    UniLM's one network in four modes (Dong et al., 2019, arXiv:1905.03197, sec. 2.2 and 2.4;
    microsoft/unilm, unilm-v1, seq2seq_loader.py: segment numbers name the mode). Numbers beyond the
    list are refused when the text is read.
    """

    needs = frozenset({"tracks.segment"})
    static = False

    def __init__(self, *, parts: Sequence[Pattern]) -> None:
        if not parts:
            raise ConfigError("pattern.parts", [], "a pattern for every number of a segment")
        self.parts, self.heads = list(parts), max(part.heads for part in parts)
        self.layers = max(part.layers for part in parts)
        self._take_fields(self.parts)

    def change_parts(self, change: Callable[[Pattern], Pattern]) -> Pattern:
        return BySegment(parts=[change(part) for part in self.parts])

    @property
    def prefix_segments(self) -> tuple[int, int] | None:
        return next((part.prefix_segments for part in self.parts if part.prefix_segments), None)

    def sight(self, segment: int | None = None) -> Sight:
        if segment is not None and segment < len(self.parts):
            return self.parts[segment].sight(segment)
        seen = reduce(or_, (part.sight(segment) for part in self.parts))
        return Sight(seen.heads, exact=False)

    def predicate(self, seq: Seq) -> MaskMod:
        segment = seq.tracks["segment"]
        kinds: dict[str, tuple[MaskMod, list[int]]] = {}
        for number, part in enumerate(self.parts):  # equal parts are evaluated once
            kinds.setdefault(f"{type(part)} {vars(part)}", (part.predicate(seq), []))[1].append(
                number
            )

        def allowed(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
            own = segment[b, q]
            results = [
                f(b, h, q, k) & reduce(or_, (own == number for number in numbers))
                for f, numbers in kinds.values()
            ]
            return reduce(or_, results)

        return allowed
