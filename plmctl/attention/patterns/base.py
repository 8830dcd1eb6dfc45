"""Patterns: predicates over (row, head, query, key), and their algebra `&`, `|`, `~`.

A pattern states four facts, and the algebra derives each of them for compositions:

    predicate   may query q of row b in head h see key k? Kernels evaluate it where they need it.
    sight       the offsets `key - query` that are seen, exactly or as a bound; from it `reach`
                (how far back and ahead) and `looks_ahead` follow.
    blocks      the blocks of keys that a block of queries may need; the others are never computed.
    simplify    the rest of the pattern in one batch: without padding, `Padding` is `Full`.

A pattern that differs from layer to layer or from head to head also gives the pattern of a layer
(`at_layer`) and of a head (`of_head`). A pattern that only sees tokens at multiples of a distance
gives its form among these tokens (`views`, `thin`). Kernels then gather such tokens next to each
other.

True always means *may attend*. With a cache, `seq` describes all keys (the oldest first) and query
row q is at key q + k_offset.

Beyond 400 lines: patterns and their algebra need each other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, reduce
from itertools import product
from operator import and_, or_
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from plmctl.attention.patterns.offsets import Offsets, Sight
from plmctl.attention.patterns.picture import draw
from plmctl.core.batch import Seq
from plmctl.core.errors import ConfigError, UsageError
from plmctl.core.fields import COMMON, Field
from plmctl.core.parts import base_of, part_of

LONGEST = 1 << 24  # tokens of the longest row

# (b, h, q, k) index tensors -> bool, broadcast together
MaskMod = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


class View(NamedTuple):
    """A part of a pattern that sees pairs of tokens at multiples of `gap` alone."""

    gap: int  # 1: any pairs
    pattern: Pattern


class Reach(NamedTuple):
    """The largest distance of a key before and after the query; None: no limit."""

    back: int | None
    ahead: int | None


def spread(x: Tensor, gap: int, fill: int | None = None) -> Tensor:
    """[B, T] -> [B gap, ceil(T / gap)]: every `gap`-th token of a row, from each of the first `gap`
    on; filled up with `fill`, or with the last token.
    """
    missing = -x.shape[1] % gap
    more = (
        x[:, -1:].expand(-1, missing) if fill is None else x.new_full((x.shape[0], missing), fill)
    )
    return torch.cat([x, more], 1).unflatten(1, (-1, gap)).transpose(1, 2).flatten(0, 1)


@base_of("pattern")
class Pattern:
    """A predicate `(b, h, q, k) -> bool`; a subclass writes `predicate`, whose q and k are
    positions in the same sequence.

    A subclass that sees only some offsets states them in `sight`; one that sees only some blocks
    states them in `blocks`. Otherwise every kernel computes all pairs, and a model with it counts
    as one that looks ahead.
    """

    needs: frozenset[str] = frozenset()  # fields of the batch
    uses: frozenset[str] = frozenset()  # fields that it reads if they are there
    links: frozenset[str] = frozenset()  # those of them without which no token sees another
    fields: Mapping[str, Field] = {}  # fields that it introduces
    # equal for all batches of the same shape, so that a kernel may cache what it derives
    static: bool = True
    heads: int = 1  # number of heads that it distinguishes; 1 = the same for all
    # number of layers that it distinguishes; 1 = the same for all. Its own facts are then those of
    # all layers together
    layers: int = 1

    @property
    def prefix_segments(self) -> tuple[int, int] | None:
        """The numbers of the segments that are read as a source and written after it, if there are
        such.
        """
        return None

    def predicate(self, seq: Seq) -> MaskMod:
        """The predicate for the rows of `seq`."""
        raise NotImplementedError(type(self).__name__)

    def sight(self, segment: int | None = None) -> Sight:
        """The offsets `key - query` that each head sees.

        Args:
            segment: In a full row of one document, all of this segment. None: in any row.
        """
        return Sight.unknown()

    def always_seen(self) -> Offsets:
        """Offsets that every query sees in every row, with each head: all of them if `sight` is
        exact, otherwise maybe fewer.
        """
        sight = self.sight()
        nothing = ~Offsets.everything()
        return reduce(and_, sight.heads) if sight.exact else nothing

    def blocks(self, seq: Seq, size: int) -> Tensor:
        """The blocks of `size` keys that some query of a block of `size` queries may see.

        Returns:
            bool [B | 1, N, N], N = ceil(T / size), by row, block of queries, block of keys. True
                wherever the predicate is true; it may be True elsewhere, which only costs time.
        """
        offsets = self.sight().together()
        count = -(-seq.ids.shape[1] // size)
        # from the last query of one block to the first key of the other, and the reverse
        distance = np.arange(-(count - 1), count) * size
        seen = torch.from_numpy(offsets.meets(distance - size + 1, distance + size - 1))
        index = torch.arange(count, device="cpu")
        return seen[index[None, :] - index[:, None] + count - 1].to(seq.ids.device)[None]

    def find_global(self, seq: Seq) -> Tensor | None:
        """[B | 1, T] bool: the tokens that see all and that all see; None: it names none."""
        return None

    def change_parts(self, change: Callable[[Pattern], Pattern]) -> Pattern:
        """The same pattern with other parts; the pattern itself if it has no parts."""
        return self

    def at_layer(self, layer: int) -> Pattern:
        """The pattern of one layer, counted from 0."""
        if self.layers == 1:
            return self
        return self.change_parts(lambda part: part.at_layer(layer))

    def of_head(self, head: int) -> Pattern:
        """The pattern of one head, counted from 0."""
        return self if self.heads == 1 else self.change_parts(lambda part: part.of_head(head))

    def views(self) -> list[View]:
        """Patterns that together see what it sees, each pair of tokens in one of them."""
        return [View(1, self)]

    def thin(self, gap: int, seq: Seq) -> Pattern | None:
        """The same pattern among every `gap`-th token of the rows of `seq`. Its predicate for the
        queries r + gap i and the keys r + gap j, r < gap, depends on i and j alone. None if no such
        pattern exists. It is called for the rows that `spread` gives.
        """
        return None

    def simplify(self, seq: Seq) -> Pattern:
        """The same pattern without the parts that allow everything in `seq`; `Full()` if nothing
        remains.
        """
        return self

    def reach(self) -> Reach:
        """How far back and ahead any query of any head looks at most, in any row."""
        offsets = self.sight().together()
        if offsets.is_empty():
            return Reach(0, 0)
        least, most = offsets.least(), offsets.most()
        return Reach(
            None if least is None else max(0, -least), None if most is None else max(0, most)
        )

    def looks_ahead(self, segment: int = 0) -> bool:
        """Whether some token may see a later one, in a row all of this segment, of any length.

        Exact if `sight` is; a pattern that does not state its offsets counts as one that does.
        """
        return _looks_ahead(self, segment)

    def bind(self, seq: Seq, *, q_index: Tensor | None = None, k_offset: int = 0) -> MaskMod:
        """The `mask_mod` for `seq`.

        Args:
            q_index: [B, Tq] the position of each query row; None: row q is at q + k_offset.

        Raises:
            UsageError: if `seq` lacks a track that the pattern needs.
        """
        check_tracks(self, seq)
        allowed = self.predicate(seq)
        if q_index is not None:
            return lambda b, h, q, k: allowed(b, h, q_index[b, q], k)
        return lambda b, h, q, k: allowed(b, h, q + k_offset, k)

    def dense(self, seq: Seq, *, q_index: Tensor | None = None, k_offset: int = 0) -> Tensor | None:
        """bool [B | 1, H | 1, Tq, Tk]; a leading size is 1 if the pattern does not depend on it;
        None = all allowed.
        """
        pattern = self.simplify(seq)
        if isinstance(pattern, Full):
            return None
        rows, keys = seq.ids.shape[:2]
        queries = keys - k_offset if q_index is None else q_index.shape[1]
        aranges = [
            torch.arange(n, device=seq.ids.device) for n in (rows, pattern.heads, queries, keys)
        ]
        b, h, q, k = (
            a.view([-1 if axis == number else 1 for axis in range(4)])
            for number, a in enumerate(aranges)
        )
        return pattern.bind(seq, q_index=q_index, k_offset=k_offset)(b, h, q, k)

    def find_equal(self, length: int) -> str:
        """The name of a simpler pattern that is the same in rows of `length` tokens, or ""."""
        return "full" if self.allows_all(length) else ""

    def allows_all(self, length: int) -> bool:
        """Whether every token sees every other one in all rows of `length` tokens."""
        row = torch.zeros(1, length, dtype=torch.long, device="cpu")
        seq = Seq(row, torch.tensor([length], device="cpu"), full=True)
        return self.static and isinstance(self.simplify(seq), Full)

    def picture(self, cells: int = 24, size: int | None = None) -> str:
        """The pattern as text: a line for each query, a column for each key.

        Args:
            cells: Lines and columns.
            size: Tokens of a cell; by default the fewest, up to 256, that show what is not seen.

        Returns:
            `#` where all tokens of a cell see each other, `+` where some do, `.` where none does.
        """

        def see(length: int) -> Tensor | None:  # the halves of a full row are of segments 0 and 1
            return self.dense(make_row(self, torch.arange(length, device="cpu") * 2 // length))

        return draw(see, cells, size)

    def _take_fields(self, parts: Sequence[Pattern]) -> None:
        """Take over the fields that `parts` read."""
        self.needs = self.needs.union(*(part.needs for part in parts))
        self.uses = self.uses.union(*(part.uses for part in parts))
        self.links = self.links.union(*(part.links for part in parts))
        self.fields = {name: field for part in parts for name, field in part.fields.items()}

    def __and__(self, other: Pattern) -> Pattern:
        return And(parts=[self, other])

    def __or__(self, other: Pattern) -> Pattern:
        return Or(parts=[self, other])

    def __invert__(self) -> Pattern:
        return Not(self)


def check_tracks(pattern: Pattern, seq: Seq) -> None:
    """Raise UsageError if `seq` lacks a track that the pattern needs."""
    for field in sorted(pattern.needs):
        if field.startswith("tracks.") and field.removeprefix("tracks.") not in seq.tracks:
            known = {**COMMON, **pattern.fields}.get(field)
            fix = f"\n  fix: {known.without}" if known and known.without else ""
            problem = f"this model's pattern reads {field}, which these rows do not have"
            raise UsageError(f"{problem}{fix}")


def make_row(pattern: Pattern, segments: Tensor) -> Seq:
    """One full row with these `segments [T]`, and 0 in every other track that the pattern
    needs.
    """
    zeros = torch.zeros_like(segments)[None]
    names = (
        field.removeprefix("tracks.") for field in pattern.needs if field.startswith("tracks.")
    )
    tracks = {**dict.fromkeys(names, zeros), "segment": segments[None]}
    return Seq(zeros, torch.tensor([len(segments)], device="cpu"), tracks, full=True)


@lru_cache(maxsize=64)  # called before every generated text, always for the same few patterns
def _looks_ahead(pattern: Pattern, segment: int) -> bool:
    return not (pattern.sight(segment).together() & Offsets.between(1, None)).is_empty()


@part_of("pattern")
class Full(Pattern):
    """`True`: everything sees everything (Devlin et al., 2019, arXiv:1810.04805)."""

    def sight(self, segment: int | None = None) -> Sight:
        return Sight((Offsets.everything(),))

    def predicate(self, seq: Seq) -> MaskMod:
        return lambda b, h, q, k: (q >= 0) & (k >= 0)

    def thin(self, gap: int, seq: Seq) -> Pattern:
        return self


class ComposedPattern(Pattern):
    """Several patterns joined by one operator; nested uses of the same operator become one flat
    list. A subclass whose operator is `or_` may say more exactly where which of them counts.
    """

    operator: ClassVar[Callable[[Any, Any], Any]]

    def __init__(self, *, parts: Sequence[Pattern]) -> None:
        if not parts:
            raise ConfigError("pattern.parts", [], "at least one pattern")
        self.parts: list[Pattern] = []
        for part in parts:
            self.parts += (
                part.parts
                if isinstance(part, ComposedPattern) and type(part) is type(self)
                else [part]
            )
        self._take_fields(self.parts)
        self.static = all(part.static for part in self.parts)
        self.heads = _agree("heads", [part.heads for part in self.parts])
        self.layers = _agree("layers", [part.layers for part in self.parts])

    def with_parts(self, parts: Sequence[Pattern]) -> Pattern:
        """The same pattern of other parts."""
        return type(self)(parts=parts)

    @property
    def prefix_segments(self) -> tuple[int, int] | None:
        return next((part.prefix_segments for part in self.parts if part.prefix_segments), None)

    def sight(self, segment: int | None = None) -> Sight:
        return reduce(type(self).operator, (part.sight(segment) for part in self.parts))

    def always_seen(self) -> Offsets:
        return reduce(type(self).operator, (part.always_seen() for part in self.parts))

    def blocks(self, seq: Seq, size: int) -> Tensor:
        own = super().blocks(seq, size)  # the gaps of two parts together may leave nothing
        return own & reduce(type(self).operator, (part.blocks(seq, size) for part in self.parts))

    def change_parts(self, change: Callable[[Pattern], Pattern]) -> Pattern:
        return self.with_parts([change(part) for part in self.parts])

    def thin(self, gap: int, seq: Seq) -> Pattern | None:
        thinned = [part.thin(gap, seq) for part in self.parts]
        some = [part for part in thinned if part is not None]
        return self.with_parts(some) if len(some) == len(thinned) else None

    def find_global(self, seq: Seq) -> Tensor | None:
        marked = [part.find_global(seq) for part in self.parts]
        named = [tokens for tokens in marked if tokens is not None]
        return reduce(or_, named) if named else None

    def predicate(self, seq: Seq) -> MaskMod:
        allowed = [part.predicate(seq) for part in self.parts]
        return lambda b, h, q, k: reduce(type(self).operator, (f(b, h, q, k) for f in allowed))


def _agree(what: str, counts: Sequence[int]) -> int:
    """The number of heads or layers that parts tell apart together."""
    numbers = set(counts) - {1}
    if len(numbers) > 1:
        allowed = f"the same number of {what} in every part that tells {what} apart"
        raise ConfigError("pattern.parts", sorted(numbers), allowed)
    return max(numbers, default=1)


@part_of("pattern")
class And(ComposedPattern):
    """`a & b`: allowed by every part."""

    operator = and_

    def find_equal(self, length: int) -> str:
        idle = [part.allows_all(length) for part in self.parts]
        left = [part for part, allows in zip(self.parts, idle, strict=True) if not allows]
        plain = sum(isinstance(part, Full) for part in self.parts)
        if len(left) == 1 and sum(idle) > plain:
            return type(left[0]).__name__.lower()
        return super().find_equal(length)

    def simplify(self, seq: Seq) -> Pattern:
        left = [
            part
            for part in (part.simplify(seq) for part in self.parts)
            if not isinstance(part, Full)
        ]
        return Full() if not left else left[0] if len(left) == 1 else And(parts=left)

    def views(self) -> list[View]:
        combined = product(*(part.views() for part in self.parts))
        return [
            View(max(view.gap for view in views), And(parts=[view.pattern for view in views]))
            for views in combined
        ]


@part_of("pattern")
class Or(ComposedPattern):
    """`a | b`: allowed by at least one part."""

    operator = or_

    def allows_all(self, length: int) -> bool:
        return any(part.allows_all(length) for part in self.parts)

    def simplify(self, seq: Seq) -> Pattern:
        parts = [part.simplify(seq) for part in self.parts]
        return Full() if any(isinstance(part, Full) for part in parts) else Or(parts=parts)

    def views(self) -> list[View]:
        views = [view for part in self.parts for view in part.views()]
        near = [view.pattern for view in views if view.gap == 1]
        disjoint, before = ([View(1, Or(parts=near))], near) if near else ([], [])
        for gap, pattern in (view for view in views if view.gap > 1):
            fresh = And(parts=[pattern, Not(Or(parts=before))]) if before else pattern
            disjoint, before = [*disjoint, View(gap, fresh)], [*before, pattern]
        return disjoint


@part_of("pattern")
class Not(Pattern):
    """`~a`: allowed where `a` forbids."""

    def __init__(self, part: Pattern) -> None:
        if part.layers > 1:
            allowed = "a pattern that is the same in all layers"
            raise ConfigError("pattern.part", type(part).__name__, allowed)
        self.part, self.static, self.heads = part, part.static, part.heads
        self._take_fields([part])

    def change_parts(self, change: Callable[[Pattern], Pattern]) -> Pattern:
        return Not(change(self.part))

    def thin(self, gap: int, seq: Seq) -> Pattern | None:
        thinned = self.part.thin(gap, seq)
        return None if thinned is None else Not(thinned)

    def simplify(self, seq: Seq) -> Pattern:
        return Not(self.part.simplify(seq))

    def sight(self, segment: int | None = None) -> Sight:
        return ~self.part.sight(segment)

    def predicate(self, seq: Seq) -> MaskMod:
        allowed = self.part.predicate(seq)
        return lambda b, h, q, k: ~allowed(b, h, q, k)
