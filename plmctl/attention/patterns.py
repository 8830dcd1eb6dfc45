"""Who may see whom: predicates over (row, head, query, key), composed with `&`, `|` and `~`.

`dense` evaluates a predicate for all pairs, on broadcast aranges: the mask that every kernel here
reads. So a window costs what full attention costs, and the mask. `bind` gives the same function in
the form of FlexAttention's `mask_mod`, which no kernel here takes yet. True = may attend. With
memory, `seq` describes all keys (memory first) and query row q stands at key q + k_offset.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, reduce
from operator import and_, or_
from typing import Any, ClassVar

import torch
from torch import Tensor

from plmctl.core.batch import Seq
from plmctl.core.errors import ConfigError, UsageError
from plmctl.core.parts import base_of, part_of

_ROW = 1024  # tokens of a row that a pattern is looked at with, each with each
_FAR = 1 << 16  # tokens of a row that some queries of a pattern without a reach look through
_FARTHEST = 1 << 24  # tokens: no row is longer
# (b, h, q, k) index tensors -> bool, broadcast together
MaskMod = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


@base_of("pattern")
class Pattern:
    """A predicate `(b, h, q, k) -> bool`; a subclass writes `predicate`, whose q and k are
    places in the same sequence.
    """

    needs: frozenset[str] = frozenset()  # fields of the batch, as in `batch.FIELDS`
    uses: frozenset[str] = frozenset()  # fields that it reads where they are there
    fields: Mapping[str, str] = {}  # fields that it introduces, with shape, type and meaning
    # the same for every batch of the same shape: a kernel may cache what it derives from it
    static: bool = True
    heads: int = 1  # how many heads it tells apart; 1 = the same for all
    # each query has few keys: a kernel that passed over the others would save work
    sparse: bool = False

    @property
    def prefix_segments(self) -> tuple[int, int] | None:
        """Numbers of the segments that are read as a source and written after it, where there
        are such.
        """
        return None

    def predicate(self, seq: Seq) -> MaskMod:
        raise NotImplementedError(type(self).__name__)

    def given(self, seq: Seq) -> Pattern:
        """The same pattern without the parts that allow everything in `seq`; `Full()` where
        nothing is left to forbid.
        """
        return self

    def bind(self, seq: Seq, *, q_index: Tensor | None = None, k_offset: int = 0) -> MaskMod:
        """The `mask_mod` for `seq`; `q_index [B, Tq]` names the place of each query row, otherwise
        row q is at q + k_offset.

        UsageError where `seq` lacks a track that the pattern needs.
        """
        for field in sorted(self.needs):
            if field.startswith("tracks.") and field.removeprefix("tracks.") not in seq.tracks:
                raise UsageError(
                    f"this model's pattern reads {field}, which these rows do not have"
                )
        allowed = self.predicate(seq)
        if q_index is not None:
            return lambda b, h, q, k: allowed(b, h, q_index[b, q], k)
        return lambda b, h, q, k: allowed(b, h, q + k_offset, k)

    def dense(self, seq: Seq, *, q_index: Tensor | None = None, k_offset: int = 0) -> Tensor | None:
        """bool [B | 1, H | 1, Tq, Tk], each leading size 1 where the pattern does not depend on
        it; None = all allowed.
        """
        pattern = self.given(seq)
        if isinstance(pattern, Full):
            return None
        rows, keys = seq.ids.shape[:2]
        queries = keys - k_offset if q_index is None else q_index.shape[1]
        aranges = [
            torch.arange(n, device=seq.ids.device) for n in (rows, pattern.heads, queries, keys)
        ]
        b, h, q, k = (
            a.view([-1 if axis == place else 1 for axis in range(4)])
            for place, a in enumerate(aranges)
        )
        return pattern.bind(seq, q_index=q_index, k_offset=k_offset)(b, h, q, k)

    def horizon(self) -> int | None:
        """A distance from which on every key is seen alike, in a row of one segment; None:
        places count as well.
        """
        return None

    def remark(self, length: int) -> str:
        """What one should know of it before training on rows of up to `length` tokens, in one
        line; mostly nothing: "".
        """
        row = torch.zeros(1, length, dtype=torch.long, device="cpu")
        left = (
            self.given(Seq(row, torch.tensor([length], device="cpu"), full=True))
            if self.static
            else self
        )
        if isinstance(left, Full) and not isinstance(self, Full):
            return (
                f"forbids nothing in rows of {length} tokens, the longest here:"
                " the same as pattern=full"
            )
        saves = (
            "is computed for all pairs of tokens, under a mask: it takes more time than"
            " pattern=full, and no less memory"
        )
        return saves if self.sparse else ""

    def looks_ahead(self, segment: int = 0) -> bool:
        """Whether some token sees one behind it, in a row all of that segment, however long.

        Exact for patterns that have a horizon; the others are looked at in rows of some length.
        """
        return _looks_ahead(self, segment)

    def learns_of_all(self, place: int, segments: tuple[int, int]) -> bool:
        """Whether layer upon layer the token at `place` hears of every other, in a row whose
        halves are of these segments.
        """
        allowed = self._shown(segments)
        if allowed is None:
            return True
        sees = allowed[0].any(0)
        heard, before = sees[place], None
        while before is None or bool((heard != before).any()):
            before, heard = heard, sees[heard].any(0) | heard
        return bool(heard.all())

    def _shown(self, segments: tuple[int, int]) -> Tensor | None:
        """[1, H | 1, _ROW, _ROW] `dense` of such a row; on the CPU also while a model without
        numbers is made.

        Any other track that it needs is 0 everywhere; a pattern of which that says too little has
        answers of its own.
        """
        return self.dense(
            self._row(torch.tensor(segments, device="cpu").repeat_interleave(_ROW // 2))
        )

    def _row(self, segments: Tensor) -> Seq:
        """One full row whose tokens are of these `segments [T]`, and 0 in every other track that
        the pattern needs.
        """
        zeros = torch.zeros_like(segments)[None]
        names = (
            field.removeprefix("tracks.") for field in self.needs if field.startswith("tracks.")
        )
        tracks = {**dict.fromkeys(names, zeros), "segment": segments[None]}
        return Seq(zeros, torch.tensor([len(segments)], device="cpu"), tracks, full=True)

    def _read(self, parts: Sequence[Pattern]) -> None:
        """Take over which fields `parts` read."""
        self.needs = self.needs.union(*(part.needs for part in parts))
        self.uses = self.uses.union(*(part.uses for part in parts))
        self.fields = {field: meaning for part in parts for field, meaning in part.fields.items()}

    def __and__(self, other: Pattern) -> Pattern:
        return And(parts=[self, other])

    def __or__(self, other: Pattern) -> Pattern:
        return Or(parts=[self, other])

    def __invert__(self) -> Pattern:
        return Not(self)


@lru_cache(maxsize=64)  # asked before every text that is written, and always of the same few
def _looks_ahead(pattern: Pattern, segment: int) -> bool:
    reach = pattern.horizon()
    if reach is not None:  # all queries are alike, and so are all keys beyond the reach
        return _sees_ahead(pattern, segment, queries=[0], length=reach + 2)
    allowed = pattern._shown((segment, segment))
    near = allowed is None or bool(allowed.triu(1).any())
    return near or _sees_ahead(
        pattern, segment, queries=range(0, _FAR, _FAR // 32 - 1), length=_FAR
    )


def _sees_ahead(pattern: Pattern, segment: int, *, queries: Iterable[int], length: int) -> bool:
    """Whether one of these queries sees a later key in a row of that segment and length."""
    seq = pattern._row(torch.full([length], segment, device="cpu"))
    pattern = pattern.given(seq)
    allowed, zero = pattern.bind(seq), torch.zeros(1, 1, 1, 1, dtype=torch.long, device="cpu")
    heads = torch.arange(pattern.heads, device="cpu").view(1, -1, 1, 1)
    for query in queries:
        # in pieces: a reach may be long
        for keys in torch.arange(query + 1, length, device="cpu").split(_FAR):
            if bool(allowed(zero, heads, zero + query, keys.view(1, 1, 1, -1)).any()):
                return True
    return False


def _farthest(distances: Iterable[int | None]) -> int | None:
    """The longest of several reaches; None where one of them is None."""
    found = list(distances)
    return None if None in found else max(distance for distance in found if distance is not None)


class _Composed(Pattern):
    """Several patterns joined by one operator; nested uses of the same operator become one flat
    list.
    """

    operator: ClassVar[Callable[[Any, Any], Any]]
    sparse_with: ClassVar[Callable[[Iterable[bool]], bool]]  # any sparse part, or all of them

    def __init__(self, *, parts: Sequence[Pattern]) -> None:
        if not parts:
            raise ConfigError("pattern.parts", [], "at least one pattern")
        self.parts: list[Pattern] = []
        for part in parts:
            self.parts += (
                part.parts if isinstance(part, _Composed) and type(part) is type(self) else [part]
            )
        self._read(self.parts)
        self.static = all(part.static for part in self.parts)
        self.sparse = type(self).sparse_with(part.sparse for part in self.parts)
        self.heads = max(part.heads for part in self.parts)

    @property
    def prefix_segments(self) -> tuple[int, int] | None:
        return next((part.prefix_segments for part in self.parts if part.prefix_segments), None)

    def horizon(self) -> int | None:
        return _farthest(part.horizon() for part in self.parts)

    def predicate(self, seq: Seq) -> MaskMod:
        allowed = [part.predicate(seq) for part in self.parts]
        return lambda b, h, q, k: reduce(type(self).operator, (f(b, h, q, k) for f in allowed))


@part_of("pattern")
class And(_Composed):
    """`a & b`: allowed by every part."""

    operator, sparse_with = and_, any

    def given(self, seq: Seq) -> Pattern:
        left = [
            part for part in (part.given(seq) for part in self.parts) if not isinstance(part, Full)
        ]
        return Full() if not left else left[0] if len(left) == 1 else And(parts=left)


@part_of("pattern")
class Or(_Composed):
    """`a | b`: allowed by at least one part."""

    operator, sparse_with = or_, all

    def given(self, seq: Seq) -> Pattern:
        left = [part.given(seq) for part in self.parts]
        return Full() if any(isinstance(part, Full) for part in left) else Or(parts=left)


@part_of("pattern")
class Not(Pattern):
    """`~a`: allowed where `a` forbids."""

    def __init__(self, part: Pattern) -> None:
        self.part, self.static, self.heads = part, part.static, part.heads
        self._read([part])

    def given(self, seq: Seq) -> Pattern:
        return Not(self.part.given(seq))

    def horizon(self) -> int | None:
        return self.part.horizon()

    def predicate(self, seq: Seq) -> MaskMod:
        allowed = self.part.predicate(seq)
        return lambda b, h, q, k: ~allowed(b, h, q, k)


@part_of("pattern")
class Full(Pattern):
    """`True`: everything sees everything (Devlin et al., 2019, arXiv:1810.04805)."""

    def horizon(self) -> int:
        return 0

    def predicate(self, seq: Seq) -> MaskMod:
        return lambda b, h, q, k: (q >= 0) & (k >= 0)


@part_of("pattern")
class Causal(Pattern):
    """`k <= q`: the past and oneself (Radford et al., 2018, sec. 3.1)."""

    def horizon(self) -> int:
        return 0

    def predicate(self, seq: Seq) -> MaskMod:
        return lambda b, h, q, k: k <= q


@part_of("pattern")
class Anticausal(Pattern):
    """`k >= q`: the future and oneself; the right-to-left mode of UniLM (Dong et al., 2019,
    arXiv:1905.03197, sec. 2.3).
    """

    def horizon(self) -> int:
        return 0

    def predicate(self, seq: Seq) -> MaskMod:
        return lambda b, h, q, k: k >= q


def _checked_reach(reach: int) -> int:
    if not 0 <= reach <= _FARTHEST:
        raise ConfigError(
            "reach",
            reach,
            f"0 (oneself alone) to {_FARTHEST:,} tokens to either side",
            fix="reach=128",
        )
    return reach


@part_of("pattern")
class Window(Pattern):
    """`|q - k| <= reach`: a sliding window of 2 reach + 1 keys (Beltagy et al., 2020,
    arXiv:2004.05150, sec. 3.1).
    """

    sparse = True

    def __init__(self, *, reach: int) -> None:
        self._reach = _checked_reach(reach)

    def horizon(self) -> int:
        return self._reach + 1

    def given(self, seq: Seq) -> Pattern:
        return Full() if self._reach >= seq.ids.shape[1] - 1 else self

    def predicate(self, seq: Seq) -> MaskMod:
        return lambda b, h, q, k: (q - k).abs() <= self._reach


@part_of("pattern")
class Dilated(Pattern):
    """`|q - k| <= reach d_h  and  (q - k) mod d_h = 0`: a window with gaps, d_h = `dilation[h]`
    (Beltagy et al., 2020).

    A single dilation serves every head; `dilation` must otherwise name one for each head.
    """

    sparse = True

    def __init__(self, *, reach: int, dilation: Sequence[int]) -> None:
        self._reach, self.dilation, self.heads = (
            _checked_reach(reach),
            tuple(dilation),
            len(dilation),
        )
        if not dilation or min(dilation) < 1 or max(dilation) * reach > _FARTHEST:
            allowed = f"1 or more for each head, times reach at most {_FARTHEST:,}"
            raise ConfigError("dilation", list(dilation), allowed, fix="dilation=[2]")

    def horizon(self) -> int:
        return self._reach * max(self.dilation) + 1

    def given(self, seq: Seq) -> Pattern:
        return Full() if set(self.dilation) == {1} and self._reach >= seq.ids.shape[1] - 1 else self

    def predicate(self, seq: Seq) -> MaskMod:
        gaps = torch.tensor(self.dilation, device=seq.ids.device)

        def allowed(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
            gap = gaps[h] if self.heads > 1 else gaps[0]
            return ((q - k).abs() <= self._reach * gap) & ((q - k) % gap == 0)

        return allowed


class Padding(Pattern):
    """`real[b, k]`: no query sees a padding key; padding queries are not masked, no loss reads
    them.
    """

    static = False

    def horizon(self) -> int:
        return 0  # of a full row of one document, where it allows everything

    def given(self, seq: Seq) -> Pattern:
        return Full() if seq.full else self

    def predicate(self, seq: Seq) -> MaskMod:
        real = seq.real
        return lambda b, h, q, k: real[b, k]


class Documents(Pattern):
    """`document[b, q] = document[b, k]`: the documents packed into one row stay apart;
    everything where rows are not packed.
    """

    static = False

    def horizon(self) -> int:
        return 0  # of a full row of one document, where it allows everything

    def given(self, seq: Seq) -> Pattern:
        return self if "document" in seq.tracks else Full()

    def predicate(self, seq: Seq) -> MaskMod:
        document = seq.tracks["document"]
        return lambda b, h, q, k: document[b, q] == document[b, k]


@part_of("pattern")
class Prefix(Pattern):
    """`segment[b, k] = source  or  k <= q`: the segment `source` is seen by all, what follows it
    left to right.

    (Dong et al., 2019, arXiv:1905.03197, sec. 2.3.)
    A query of the source sees nothing of what follows, since all of it lies to the right.
    """

    needs = frozenset({"tracks.segment"})
    static = False

    def __init__(self, *, source: int = 0) -> None:
        self.source = source

    @property
    def prefix_segments(self) -> tuple[int, int] | None:
        return self.source, self.source + 1

    def horizon(self) -> int:
        return 0

    def predicate(self, seq: Seq) -> MaskMod:
        segment = seq.tracks["segment"]
        return lambda b, h, q, k: (segment[b, k] == self.source) | (k <= q)


@part_of("pattern")
class BySegment(Pattern):
    """`parts[segment[b, q]](b, h, q, k)`: who a token sees is decided by the number of its segment.

    UniLM's one network in four modes (Dong et al., 2019, arXiv:1905.03197, sec. 2.2 and 2.4;
    microsoft/unilm, unilm-v1,
    seq2seq_loader.py: segment numbers name the mode). Numbers beyond the list are refused when the
    text is read.
    """

    needs = frozenset({"tracks.segment"})
    static = False

    def __init__(self, *, parts: Sequence[Pattern]) -> None:
        if not parts:
            raise ConfigError("pattern.parts", [], "a pattern for every number of a segment")
        self.parts, self.heads = list(parts), max(part.heads for part in parts)
        self._read(self.parts)

    @property
    def prefix_segments(self) -> tuple[int, int] | None:
        return next((part.prefix_segments for part in self.parts if part.prefix_segments), None)

    def horizon(self) -> int | None:
        return _farthest(part.horizon() for part in self.parts)

    def predicate(self, seq: Seq) -> MaskMod:
        segment = seq.tracks["segment"]
        kinds: dict[str, tuple[MaskMod, list[int]]] = {}
        for number, part in enumerate(self.parts):  # equal parts are asked once
            kinds.setdefault(f"{type(part)} {vars(part)}", (part.predicate(seq), []))[1].append(
                number
            )

        def allowed(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
            own = segment[b, q]
            chosen = [
                f(b, h, q, k) & reduce(or_, (own == number for number in numbers))
                for f, numbers in kinds.values()
            ]
            return reduce(or_, chosen)

        return allowed


class Order(Pattern):
    """`order[b, k] <= order[b, q]`, with `strict` `<`: what comes first in the order of
    factorisation; everything without one.

    The content stream of XLNet, which sees itself, and with `strict` its query stream, which does
    not (Yang et al., 2019, arXiv:1906.08237, sec. 2.3).
    """

    static = False

    def __init__(self, *, strict: bool = False) -> None:
        self.strict = strict

    def horizon(self) -> int:
        return 0  # of a full row of one document, where it allows everything

    def given(self, seq: Seq) -> Pattern:
        return self if "order" in seq.tracks else Full()

    def predicate(self, seq: Seq) -> MaskMod:
        order = seq.tracks["order"]
        if self.strict:
            return lambda b, h, q, k: order[b, k] < order[b, q]
        return lambda b, h, q, k: order[b, k] <= order[b, q]
