"""Whether a pattern of a plug-in sees what it states to see."""

from __future__ import annotations

from collections.abc import Iterator
from weakref import WeakSet

import numpy as np
import torch
from torch import Tensor

from plmctl.attention.patterns.base import Pattern, make_row
from plmctl.core.batch import Seq
from plmctl.core.errors import UsageError
from plmctl.core.fields import COMMON

LEAST, MOST = 64, 1024  # tokens of a row
BLOCK = 16  # tokens of a block of keys
_HELD: WeakSet[Pattern] = WeakSet()  # patterns that were looked at


def check_sight(pattern: Pattern) -> None:
    """Raise UsageError for a pattern that sees other tokens than it states, since each kernel would
    then compute another model. The patterns of plmctl have tests; others, and what is joined of
    them, are looked at once, in a few rows.
    """
    if pattern in _HELD:
        return
    if any(map(_is_foreign, _list_parts(pattern))):
        for each in _list_parts(pattern):
            for layer in range(each.layers):
                _check(each.at_layer(layer))
    _HELD.add(pattern)


def _is_foreign(pattern: Pattern) -> bool:
    return type(pattern).__module__.partition(".")[0] != "plmctl"


def _list_parts(pattern: Pattern) -> Iterator[Pattern]:
    """The parts of a pattern, the innermost first, and itself."""
    for value in vars(pattern).values():
        for part in value if isinstance(value, list | tuple) else [value]:
            if isinstance(part, Pattern):
                yield from _list_parts(part)
    yield pattern


def _check(pattern: Pattern) -> None:
    edges = [edge for own in pattern.sight().heads for edge in np.abs(own.steps).tolist()]
    size = min(MOST, max(LEAST, 2 * max(edges, default=0) + BLOCK))
    place = torch.arange(size, device="cpu")
    plain = make_row(pattern, torch.zeros_like(place))
    _compare(pattern, plain, None)
    _compare(pattern, plain, 0)
    _compare(pattern, make_row(pattern, place * 2 // size), None)
    _compare(pattern, _mix_tracks(pattern, plain, place), None)


def _mix_tracks(pattern: Pattern, plain: Seq, place: Tensor) -> Seq:
    """A row with both 0 and 1 in each track that the pattern reads."""
    tracks = dict(plain.tracks)
    for number, name in enumerate(sorted(pattern.needs | pattern.uses)):
        if name.startswith("tracks.") and name != "tracks.position":
            known = {**COMMON, **pattern.fields}.get(name)
            values = (place * (2 * number + 3) // 7 % 2)[None]
            tracks[name.removeprefix("tracks.")] = (
                values.bool() if known and known.dtype == "bool" else values
            )
    return plain.with_tracks(**tracks, position=place[None])


def _compare(pattern: Pattern, seq: Seq, segment: int | None) -> None:
    """UsageError at the first query and key of which the statements are wrong.

    Args:
        seq: One full row.
        segment: The number in all of its track `segment`; None: any numbers.
    """
    size = seq.ids.shape[1]
    place = torch.arange(size, device="cpu")
    offset = place[None, :] - place[:, None]
    allowed = pattern.dense(seq)
    seen = torch.ones(1, dtype=torch.bool, device="cpu") if allowed is None else allowed[0].bool()
    seen = seen.expand(pattern.heads, size, size)
    sight, offsets = pattern.sight(segment), np.arange(1 - size, size)
    stated = torch.stack([torch.from_numpy(own.contains(offsets)) for own in sight.heads])
    stated = stated[:, offset + size - 1].expand(seen.shape)
    found = offset.expand(seen.shape)[seen]
    span = f"Offsets.between({int(found.min())}, {int(found.max())})" if len(found) else "..."
    wrong = seen & ~stated
    _refuse(pattern, wrong, "sees", "sight excludes", f"return Sight(({span},), exact=False)")
    if sight.exact and (segment is not None or pattern.static):
        what = "sight, which is exact, includes"
        _refuse(pattern, stated & ~seen, "does not see", what, "state exact=False in Sight")
    blocks = pattern.blocks(seq, BLOCK)[0].repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)
    wrong = seen & ~blocks[:size, :size]
    _refuse(pattern, wrong, "sees", "blocks excludes", "return True there from blocks")


def _refuse(pattern: Pattern, wrong: Tensor, does: str, states: str, fix: str) -> None:
    if not wrong.any():
        return
    _, query, key = map(int, wrong.nonzero()[0])
    raise UsageError(
        f"{type(pattern).__name__}: query {query} {does} key {key}, at the offset {key - query}"
        f" that {states}: kernels would disagree\n  fix: {fix} (docs/extend/pattern.md)"
    )
