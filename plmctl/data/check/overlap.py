"""The overlap of held-out text and training text: documents, lines, and runs of 13 words."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np

from plmctl.data.check.finding import Finding, format_percent, judge
from plmctl.data.check.hashes import ROOM, Repeats, hash_stretches
from plmctl.text.letters import split_spaced

GRAM = 13  # words (Brown et al., 2020, arXiv:2005.14165, app. C)
_HALF = 0.5  # a document with this share of its runs in training text counts as known
_BITS = 22  # bits of the table that rules out most hashes at once


class OverlapCounter:
    """Finds the runs of `GRAM` units of held-out documents that training text has, too.

    Call `add_held_out` for all held-out documents first, then `add_training`.
    """

    def __init__(self, room: int = ROOM) -> None:
        self._room, self._limit = room, (1 << 64) - 1
        self._hashes: list[np.ndarray] = []
        self._owners: list[np.ndarray] = []
        self._documents = self._size = 0
        self._runs = self._owner = np.zeros(0, np.int64)
        self._found = self._table = np.zeros(0, bool)

    def add_held_out(self, units: np.ndarray, edges: np.ndarray) -> None:
        """Add the held-out documents `units[edges[i]:edges[i + 1]]`."""
        hashes, owner = _runs(units, edges)
        self._hashes.append(hashes)
        self._owners.append(owner + self._documents)
        self._documents += len(edges) - 1
        self._size += len(hashes)
        while self._size > self._room:  # keep the runs in half of the hash space, and so on
            self._limit //= 2
            keep = [part <= np.uint64(self._limit) for part in self._hashes]
            self._hashes = [part[k] for part, k in zip(self._hashes, keep, strict=True)]
            self._owners = [part[k] for part, k in zip(self._owners, keep, strict=True)]
            self._size = sum(map(len, self._hashes))

    def add_training(self, units: np.ndarray, edges: np.ndarray) -> None:
        """Look up the training documents `units[edges[i]:edges[i + 1]]`."""
        if not len(self._table):
            self._close()
        hashes, _ = _runs(units, edges)
        hashes = hashes[self._table[hashes >> np.uint64(64 - _BITS)]]
        left = np.searchsorted(self._runs, hashes)
        right = np.searchsorted(self._runs, hashes, side="right")
        marks = np.zeros(len(self._runs) + 1, np.int64)
        np.add.at(marks, left, 1)
        np.add.at(marks, right, -1)
        self._found |= np.cumsum(marks)[:-1] > 0

    def _close(self) -> None:
        hashes = np.concatenate([*self._hashes, np.zeros(0, np.uint64)])
        order = np.argsort(hashes, kind="stable")
        self._runs = hashes[order]
        self._owner = np.concatenate([*self._owners, np.zeros(0, np.int64)])[order]
        self._found, self._table = np.zeros(len(hashes), bool), np.zeros(1 << _BITS, bool)
        self._table[hashes >> np.uint64(64 - _BITS)] = True
        self._hashes, self._owners = [], []

    def shares(self) -> tuple[float, float]:
        """The shares of the runs, and of the documents with runs, that training text has (a
        document: half of its runs).
        """
        if not len(self._found):
            return 0.0, 0.0
        runs = np.bincount(self._owner, minlength=self._documents)
        known = np.bincount(self._owner, self._found, minlength=self._documents)
        return float(self._found.mean()), float((known[runs > 0] >= _HALF * runs[runs > 0]).mean())


class Words(dict[str, int]):
    """From text to units: one for each word, one for each character of scripts without spaces; case
    is ignored.
    """

    _ROOM = 1 << 20

    def __call__(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """(units [N] of all texts, edges [n + 1])."""
        cut = [split_spaced(text.lower()) for text in texts]
        edges = np.cumsum([0, *map(len, cut)])
        return np.array([self[word] for words in cut for word in words], np.uint64), edges

    def __missing__(self, word: str) -> int:
        unit = int.from_bytes(
            blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little"
        )
        if len(self) < self._ROOM:
            self[word] = unit
        return unit


def report_overlap(
    documents: tuple[Repeats, Repeats],
    lines: tuple[Repeats, Repeats],
    runs: OverlapCounter,
    line: str,
) -> list[Finding]:
    """Findings on what (held-out, training) have in common; `line` is the word for a line."""
    same = documents[0].shared_with(documents[1])
    parts = lines[0].shared_with(lines[1])
    (run, known) = runs.shares()
    return [
        judge(
            "held-out documents in train",
            f"{format_percent(same)} of the held-out documents",
            same,
            look=0,
            bad=0.01,
            advice="Remove them from the training text, or validation measures memorisation.",
            numbers={"share": same},
        ),
        judge(
            f"held-out {line}s in train",
            f"{format_percent(parts)} of the longer held-out {line}s",
            parts,
            look=0.05,
            bad=0.2,
            advice=(
                f"Look at these {line}s: boilerplate is harmless,"
                " passages that both texts quote are not."
            ),
            numbers={"share": parts},
        ),
        judge(
            f"{GRAM}-grams in train",
            f"{format_percent(run)} of the held-out runs of {GRAM}, half or more of them in "
            f"{format_percent(known)} of the held-out documents",
            max(run, known),
            look=0.02,
            bad=0.1,
            advice=(
                "Hold out whole sources or whole days instead of single documents,"
                " or remove near copies."
            ),
            numbers={"share": run, "documents": known},
        ),
    ]


def _runs(units: np.ndarray, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(hash, document) of every run that is inside one document."""
    size = np.diff(edges)
    count = np.maximum(size - GRAM + 1, 0)
    owner = np.repeat(np.arange(len(size)), count)
    start = (
        np.arange(int(count.sum()))
        - np.repeat(np.cumsum(count) - count, count)
        + np.repeat(edges[:-1], count)
    )
    return hash_stretches(units, start, start + GRAM), owner
