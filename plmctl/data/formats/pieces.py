"""Rows made of pieces: stretches of the token shards with special tokens before and after, laid side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from plmctl.batch import Seq
from plmctl.data.formats.base import Plan
from plmctl.errors import ConfigError
from plmctl.noise.masking import runs
from plmctl.text.vocab import Vocab

if TYPE_CHECKING:
    from plmctl.data.shards import Shards


@dataclass(frozen=True)
class Wrap:
    """The special tokens around one kind of piece."""

    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        return len(self.before) + len(self.after)


def wraps(vocab: Vocab, template: Sequence[str]) -> list[Wrap]:
    """One `Wrap` for each segment of a template of roles: `("cls", "A", "sep", "B", "sep")` gives cls A sep and B sep."""
    found: list[list[list[int]]] = []
    leading: list[int] = []
    for role in template:
        if role in ("A", "B"):
            found.append([leading, []])
            leading = []
        else:
            (found[-1][1] if found else leading).append(special(vocab, role))
    return [Wrap(tuple(before), tuple(after)) for before, after in found]


def special(vocab: Vocab, role: str) -> int:
    """The id of a role that a format puts into rows; ConfigError where the tokenizer lacks it."""
    value = getattr(vocab, role)
    if value is None:
        raise ConfigError("format", role, f"this tokenizer has no '{role}' token", fix="choose another format or tokenizer")
    return value


def piece_plan(
    *, shards: Shards, width: int, row_start: np.ndarray, start: np.ndarray, size: np.ndarray, kind: np.ndarray,
    kinds: list[Wrap],
) -> Plan:  # fmt: skip
    """A plan over pieces: row r holds the pieces `row_start[r]` up to `row_start[r + 1]`; `kind` indexes `kinds`.

    `report` says where every token went: tokens + repeated = laid_out + cut; laid_out + specials + padding = rows * width.
    """
    rows = len(row_start) - 1
    laid_out, kind = int(size.sum()), kind.astype(np.int8)
    specials = int(np.array([wrap.size for wrap in kinds])[kind].sum())
    report = {
        "tokens": len(shards.ids), "laid_out": laid_out, "repeated": 0, "cut": 0, "specials": specials,
        "padding": rows * width - laid_out - specials,
    }  # fmt: skip
    arrays = {"row_start": row_start, "start": start, "size": size.astype(np.int32), "kind": kind}
    return Plan(rows, arrays, report, width)


@dataclass(frozen=True)
class Layout:
    """Rows as `piece_plan` describes them, with the places of their pieces."""

    seq: Seq
    slots: np.ndarray  # [m] tokens of each slot: the pieces of each row in order and one slot for its padding (maybe 0 wide)
    begin: np.ndarray  # [m] flattened (row, position) of each slot
    piece: np.ndarray  # [m] number of the piece inside its row, -1 for padding

    def fill(self, values: np.ndarray) -> np.ndarray:
        """[n, T] each slot filled with its value."""
        return np.repeat(values, self.slots).reshape(self.seq.ids.shape)


def lay(
    shards: Shards, plan: Plan, index: np.ndarray, kinds: list[Wrap], vocab: Vocab, wanted: frozenset[str] | None = None
) -> Layout:
    """The rows `index` of a piece plan: ids int32 [n, T], with the word-start track."""
    n, width = len(index), plan.width
    first = plan.arrays["row_start"][index]
    count = plan.arrays["row_start"][index + 1] - first
    last = np.cumsum(count + 1) - 1  # slot of each row's padding
    padding = np.zeros(int(last[-1]) + 1 if n else 0, bool)
    padding[last] = True
    piece = np.arange(len(padding)) - np.repeat(last - count, count + 1)
    source = np.repeat(first, count + 1) + piece
    source[last] = first  # any piece: its tokens are overwritten
    kind = plan.arrays["kind"][source]
    before = np.array([len(wrap.before) for wrap in kinds])[kind]
    slots = plan.arrays["size"][source] + np.array([wrap.size for wrap in kinds])[kind]
    slots[last] = 0
    length = np.add.reduceat(slots, last - count) if n else np.zeros(0, np.int64)
    slots[last] = width - length
    begin = np.cumsum(slots) - slots
    place = np.repeat(plan.arrays["start"][source] - before - begin, slots)
    place += np.arange(n * width)
    ids = np.asarray(shards.ids).take(place, mode="clip").astype(np.int32)
    piece[last] = -1
    added = [runs(begin[last], slots[last])]  # places of padding and special tokens
    ids[added[0]] = vocab.pad
    for number, wrap in enumerate(kinds):
        chosen = np.flatnonzero((kind == number) & ~padding)
        tokens = [*enumerate(wrap.before), *enumerate(wrap.after, start=-len(wrap.after))]
        for step, token in tokens:
            added.append(begin[chosen] + (step if step >= 0 else slots[chosen] + step))
            ids[added[-1]] = token
    tracks = {}
    if wanted is None or "tracks.word_start" in wanted:
        tracks["word_start"] = _word_starts(shards, vocab, ids, place, added).reshape(n, width)
    seq = Seq(ids.reshape(n, width), length.astype(np.int64), tracks, full=bool((length == width).all()))
    return Layout(seq, slots, begin, piece)


def _word_starts(shards: Shards, vocab: Vocab, ids: np.ndarray, place: np.ndarray, added: list[np.ndarray]) -> np.ndarray:
    """From the shards' track (Chinese words are not seen in the pieces) or else from the vocabulary's table."""
    if "word_start" not in shards.tracks:
        return vocab.word_start.take(ids)
    starts = np.asarray(shards.tracks["word_start"]).take(place, mode="clip").astype(bool)
    for places in added:
        starts[places] = vocab.word_start[ids[places]]
    return starts
