"""Sentence trees (K-BERT; Liu et al., 2020): what is known of a word hangs on it as branches, with
positions that go on behind the word.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from plmctl.core.batch import Rows
from plmctl.tasks.layouts.encode import Row


class Branches(NamedTuple):
    """The branches at the tokens first..last of a row: the tokens of each branch."""

    first: int
    last: int
    branches: Sequence[Sequence[int]]


@dataclass(frozen=True)
class TreeRow:
    """A row with its branches: all lists have one number a token."""

    row: Row
    position: list[
        int
    ]  # soft: a branch goes on behind its word, the sentence as if none stood there
    word: list[int]  # from 1, of words with branches and of these branches; 0: of other tokens
    branch: list[int]  # from 1; 0: of the sentence


def grow(row: Row, words: Sequence[Branches], *, max_length: int) -> TreeRow:
    """The row with branches directly behind their words; the last branches, which no longer fit,
    are left out.

    A row A B, where x y hangs on A (Liu et al., 2020, fig. 2), becomes

        tokens    A x y B      position  0 1 2 1
        word      1 1 1 0      branch    0 1 1 0
    """
    ids: list[int] = []
    position: list[int] = []
    word: list[int] = []
    branch: list[int] = []
    moved: list[int] = []  # where each token of the row is now
    room = max_length - len(row.ids)
    fitting: dict[int, tuple[int, Branches]] = {}  # by the last token of a word
    for number, each in enumerate(words, 1):
        kept = []
        for tokens in each.branches:
            if 0 < len(tokens) <= room:
                kept.append(tokens)
                room -= len(tokens)
        if kept:
            fitting[each.last] = (number, each._replace(branches=kept))
    of = np.zeros(len(row.ids), np.int64)
    for number, each in fitting.values():
        of[each.first : each.last + 1] = number
    count = 0
    for place, token in enumerate(row.ids):
        moved.append(len(ids))
        ids.append(token)
        position.append(place)
        word.append(int(of[place]))
        branch.append(0)
        if place in fitting:
            number, each = fitting[place]
            for tokens in each.branches:
                count += 1
                ids += tokens
                position += range(place + 1, place + 1 + len(tokens))
                word += [number] * len(tokens)
                branch += [count] * len(tokens)
    second = None if row.b_start is None else moved[row.b_start]
    grown = Row(ids, moved[row.a_start], second, moved[row.anchor], row.cut)
    return TreeRow(grown, position, word, branch)


def add_tracks(rows: Rows, trees: Sequence[TreeRow], *, soft: bool, segment: bool) -> Rows:
    """`rows` with the tracks of their trees.

    Args:
        soft: whether branches go on behind their words; otherwise all tokens are counted.
        segment: whether branches are of segment 1 (autoliuweijie/K-BERT).
    """
    seq = rows.seqs["text"]
    tracks = {name: np.zeros(seq.ids.shape, np.int32) for name in ("position", "word", "branch")}
    for number, tree in enumerate(trees):
        for name, track in tracks.items():
            own = getattr(tree, name)
            track[number, : len(own)] = own
    if not soft:
        del tracks["position"]
    if segment and "segment" in seq.tracks:
        kind = seq.tracks["segment"]
        tracks["segment"] = np.where(tracks["branch"] > 0, 1, kind).astype(kind.dtype)
    return rows.with_seq("text", seq.with_tracks(**tracks))
