"""Words as pieces: a sentence of words is tokenized, cut into rows, and filled up with its
context.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Pieces = list[list[int]]  # the pieces of each word


def windows(lengths: Sequence[int], room: int) -> list[tuple[int, int]]:
    """Consecutive [first, last) runs of words whose pieces fit into `room`, as few as filling
    each in turn needs.
    """
    runs: list[tuple[int, int]] = []
    first = used = 0
    for index, length in enumerate(lengths):
        if used + length > room and index > first:
            runs.append((first, index))
            first, used = index, 0
        used += length
    return [*runs, (first, len(lengths))]


def take_context(before: Pieces, after: Pieces, room: int) -> tuple[Pieces, Pieces]:
    """The end of `before` and the begin of `after` that `room` holds: one word from each in
    turn, until neither's next fits.
    """
    taken = [0, 0]
    sides = (before[::-1], after)
    turn, refused = 0, 0
    while refused < 2:
        side, count = sides[turn], taken[turn]
        if count < len(side) and len(side[count]) <= room:
            room, taken[turn], refused = room - len(side[count]), count + 1, 0
        else:
            refused += 1
        turn = 1 - turn
    return before[len(before) - taken[0] :], after[: taken[1]]


def word_pieces(words: Sequence[str], tokenizer: Any, *, joiner: str) -> Pieces:
    """The pieces of each word, at least one a word, tokenized as part of the sentence.

    A piece belongs to the word in which its first visible character lies. Where a piece spans two
    words (so that one of them would have none), the words of that sentence are tokenized one by
    one.
    """
    text = joiner.join(words)
    begins = np.cumsum([0, *(len(word) + len(joiner) for word in words[:-1])])
    ends = begins + [len(word) for word in words]
    ids, offsets = tokenizer.encode_offsets(text)
    pieces: list[list[int]] = [[] for _ in words]
    clean = True
    for token, (start, end) in zip(ids, offsets, strict=True):
        while start < end and text[start].isspace():
            start += 1
        word = min(max(int(np.searchsorted(begins, start, side="right")) - 1, 0), len(words) - 1)
        clean &= end <= ends[word] or not text[ends[word] : end].strip()
        pieces[word].append(token)
    if clean and all(pieces):
        return pieces
    unknown = tokenizer.vocab.unk if tokenizer.vocab.unk is not None else tokenizer.vocab.pad
    return [
        tokenizer.encode(joiner + word if index and joiner else word) or [unknown]
        for index, word in enumerate(words)
    ]
