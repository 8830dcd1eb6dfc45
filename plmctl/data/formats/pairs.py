"""Pairs of stretches of tokens: how a pair is shortened to a row, and how pairs are planned and
laid out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from plmctl.core.errors import ConfigError, DataError
from plmctl.core.fields import Field, Fields
from plmctl.data.formats.base import Plan
from plmctl.data.formats.packing import best_fit_decreasing
from plmctl.data.formats.pieces import Layout, plan_pieces
from plmctl.noise.masking import expand_runs
from plmctl.text.template import Wrap

if TYPE_CHECKING:
    from plmctl.data.shards import Shards

PAIR: Fields = {
    "labels.pair": Field(
        "[N]", "int", "relation of two segments (0 = B follows A; the format says what 1 and 2 are)"
    )
}


class SegmentPairs(NamedTuple):
    """Token stretches A and B of each pair."""

    a_start: np.ndarray  # [n]
    a_end: np.ndarray
    b_start: np.ndarray
    b_end: np.ndarray

    def select(self, pairs: np.ndarray) -> SegmentPairs:
        """The pairs of these indices."""
        return SegmentPairs(*(x[pairs] for x in self))

    @property
    def tokens(self) -> int:
        """Tokens of all pairs."""
        return int((self.a_end - self.a_start).sum() + (self.b_end - self.b_start).sum())


def shorten_pairs(a: np.ndarray, b: np.ndarray, room: int) -> tuple[np.ndarray, np.ndarray]:
    """The lengths that remain of `a` and `b` in `room` if tokens are removed one by one from the
    longer side (B on ties).
    """
    half = room // 2  # B's share, since ties remove from B
    b_left = np.where(
        a + b <= room, b, np.where(a <= room - half, np.minimum(b, room - a), np.minimum(b, half))
    )
    return np.minimum(a, room - b_left), b_left


def plan_pairs(
    shards: Shards, pairs: SegmentPairs, kinds: list[Wrap], width: int, *, packed: bool
) -> tuple[Plan, np.ndarray]:
    """Plan one pair a row, or pairs packed best-fit-decreasing.

    Returns:
        The plan, and the order in which the pairs are laid out.
    """
    count = len(pairs.a_start)
    order, row_start = np.arange(count), np.arange(count + 1)
    if packed:
        length = (
            pairs.a_end
            - pairs.a_start
            + pairs.b_end
            - pairs.b_start
            + kinds[0].size
            + kinds[1].size
        )
        order, row_start = best_fit_decreasing(length, width)
        pairs = pairs.select(order)
    start = np.stack([pairs.a_start, pairs.b_start], 1).ravel()
    plan = plan_pieces(
        shards=shards,
        width=width,
        row_start=row_start * 2,
        start=start,
        size=np.stack([pairs.a_end, pairs.b_end], 1).ravel() - start,
        kind=np.arange(2 * count) % 2,
        kinds=kinds,
    )
    return plan, order


def find_pair_begins(layout: Layout) -> np.ndarray:
    """[m]: for each slot of a layout of pairs, where its pair begins (for padding, where it begins
    itself).
    """
    begin = layout.begin.copy()
    second = np.flatnonzero((layout.piece >= 0) & (layout.piece % 2 == 1))
    begin[second] = layout.begin[second - 1]
    return begin


def find_anchors(layout: Layout, plan: Plan, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(the first token [N, 2] of each pair of the rows `index`, [N] its number in the plan)."""
    begin = layout.begin[(layout.piece >= 0) & (layout.piece % 2 == 0)]
    first = plan.arrays["row_start"][index] // 2
    number = expand_runs(first, plan.arrays["row_start"][index + 1] // 2 - first)
    return np.stack(np.divmod(begin, plan.width), 1), number


def number_languages(shards: Shards, start: np.ndarray, side: np.ndarray) -> np.ndarray:
    """The language of each piece that begins at `start`: that of its tokens where the token
    directory has a track `language`, else its side.
    """
    known = shards.tracks.get("language")
    return side if known is None else np.asarray(known)[start]


def read_parallel(shards: Shards, who: str) -> SegmentPairs:
    """The source and the target of every document of parallel text; `who` reads them, for messages.

    Raises:
        DataError: if the text is not parallel.
    """
    path = getattr(shards, "given", None)
    if not shards.pairs:
        message = f"{who} reads parallel text, these tokens are plain text"
        raise DataError(
            message, file=path, fix="give the translations, line by line: data.target_path=<text>"
        )
    documents, sentences = np.asarray(shards.documents), np.asarray(shards.sentences)
    if (np.diff(documents) != 2).any():
        number = int(np.flatnonzero(np.diff(documents) != 2)[0])
        problem = f"pair {number} is not one source and one target"
        raise DataError(problem, file=path, fix="tokenize the text again")
    return SegmentPairs(sentences[:-1:2], sentences[1::2], sentences[1::2], sentences[2::2])


def check_rate(name: str, rate: float) -> None:
    """Raise ConfigError unless `rate` is a probability."""
    if not 0 <= rate <= 1:
        raise ConfigError(f"format.{name}", rate, "a probability: 0 <= rate <= 1")


def check_copies(copies: int | None) -> None:
    """Raise ConfigError unless `copies` is None or at least 1."""
    if copies is not None and copies < 1:
        raise ConfigError("format.copies", copies, "at least 1, or null (cut again in every epoch)")
