"""Masking noise in three choices: which tokens (`Select`), what the input shows instead, and what is asked (`Corrupt`).

A published masking idea is one `Select` (tokens, whole words, n-grams, geometric spans, ...) with one `Corrupt` (mask or
replace each token, one sentinel a span, ...), both given to `Masking`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from plmctl.batch import IGNORE, Rows
from plmctl.errors import ConfigError
from plmctl.noise.base import Noise
from plmctl.noise.draws import HALF, Draws, below
from plmctl.text.vocab import Vocab


class Spans(NamedTuple):
    """Chosen runs of tokens, each inside one row; runs do not overlap."""

    row: np.ndarray  # [m] int64
    start: np.ndarray  # [m] int64
    length: np.ndarray  # [m] int64, >= 0

    def tokens(self) -> tuple[np.ndarray, np.ndarray]:
        """(row, position) of every token in the spans, each [sum of lengths]."""
        if (self.length == 1).all():
            return self.row, self.start
        return np.repeat(self.row, self.length), runs(self.start, self.length)


def runs(start: np.ndarray, length: np.ndarray) -> np.ndarray:
    """`start[0], start[0]+1, ..., start[1], ...`: the members of consecutive runs, one after the other."""
    before = np.cumsum(length) - length
    return np.repeat(start - before, length) + np.arange(int(length.sum()))


class Select:
    """Which tokens: `(rows, draws) -> Spans`; `capacity(length)` is the most tokens it takes from one row."""

    reads: frozenset[str] = frozenset({"input"})

    def __call__(self, rows: Rows, draws: Draws) -> Spans:
        raise NotImplementedError(type(self).__name__)

    def capacity(self, length: int) -> int:
        raise NotImplementedError(type(self).__name__)


class Corrupt:
    """What is shown and what is asked: `(rows, spans, draws) -> Rows` with new ids and targets."""

    writes: frozenset[str] = frozenset()

    def __call__(self, rows: Rows, spans: Spans, draws: Draws) -> Rows:
        raise NotImplementedError(type(self).__name__)


class Masking(Noise):
    """`corrupt(rows, select(rows))`. `static=N`: masks repeat after N epochs (N copies masked once); None: always fresh."""

    def __init__(self, *, select: Select, corrupt: Corrupt, static: int | None = None) -> None:
        if static is not None and static < 1:
            raise ConfigError("noise.static", static, "a number of epochs >= 1 after which masks repeat, or null (never)")
        self.select, self.corrupt, self.static = select, corrupt, static
        self.reads, self.writes = select.reads, corrupt.writes

    def __call__(self, rows: Rows, draws: Draws) -> Rows:
        draws = draws if self.static is None else draws.repeating(self.static)
        return self.corrupt(rows, self.select(rows, draws.child("select")), draws.child("corrupt"))

    def capacity(self, length: int) -> dict[str, int]:
        return {name.removeprefix("targets."): self.select.capacity(length) for name in self.corrupt.writes}


class Budget:
    """How many tokens of a row are chosen.

    `selection="exact"`: `min(max_predictions, max(1, round(rate * length)))` (BERT, create_pretraining_data.py);
    `selection="probabilistic"`: `floor(rate * length + u)`, u ~ U[0, 1) (RoBERTa's code, so short rows may get none).
    `length` counts the special tokens in both. A row of several documents shares its budget out in proportion to their
    lengths: `floor(b * end / length + u) - floor(b * start / length + u)`, within one token of each document's share.
    """

    SELECTIONS = ("exact", "probabilistic")

    def __init__(self, *, rate: float, max_predictions: int | None, selection: str) -> None:
        if not 0 < rate < 1:
            raise ConfigError("noise.rate", rate, "0 < rate < 1")
        if max_predictions is not None and max_predictions < 1:
            raise ConfigError("noise.max_predictions", max_predictions, "at least 1, or null (no limit)")
        if selection not in self.SELECTIONS:
            raise ConfigError("noise.selection", selection, f"one of {', '.join(self.SELECTIONS)}")
        self.rate, self.limit, self.exact = rate, max_predictions, selection == "exact"

    def of_rows(self, rows: Rows, draws: Draws) -> np.ndarray:
        """[n] int64; 0 for an empty row."""
        length = rows.seqs[rows.input].length
        if self.exact:
            budget = np.maximum(1, np.rint(self.rate * length))  # rint rounds halves to even, as Python's round
        else:
            budget = np.floor(self.rate * length + draws.uniform(rows.key, "rounding"))
        if self.limit is not None:
            budget = np.minimum(budget, self.limit)
        return np.where(length > 0, budget, 0).astype(np.int64)

    def of_documents(self, rows: Rows, draws: Draws) -> tuple[np.ndarray, np.ndarray]:
        """(first, budget), each [m]: the first slot, flattened, of each document (each row without that track), its share."""
        n, width = rows.seqs[rows.input].ids.shape
        total, document = self.of_rows(rows, draws), rows.seqs[rows.input].tracks.get("document")
        if document is None:
            return np.arange(n) * width, total
        begins = np.ones((n, width), bool)
        np.not_equal(document.ravel()[1:], document.ravel()[:-1], out=begins.ravel()[1:])
        begins[:, 0] = True
        first = np.flatnonzero(begins)
        row, start = np.divmod(first, width)
        end = start + np.diff(first, append=n * width)
        scale = total / np.maximum(rows.seqs[rows.input].length, 1)
        offset = draws.uniform(rows.key, "share")[row]
        share = np.floor(scale[row] * end + offset + 1e-9) - np.floor(scale[row] * start + offset + 1e-9)
        return first, np.where(document.ravel()[first] >= 0, share, 0).astype(np.int64)

    def capacity(self, length: int) -> int:
        most = max(1, round(self.rate * length)) if self.exact else int(self.rate * length) + 1
        return most if self.limit is None else min(most, self.limit)


class MaskOrReplace(Corrupt):
    """Each chosen token alone becomes the mask token (`mask_share`), a random one (`random_share`), or stays; all are asked.

    BERT draws the random token from the whole vocabulary (`random_specials=True`), RoBERTa from its ordinary tokens.
    """

    writes = frozenset({"targets.mlm"})

    def __init__(self, *, vocab: Vocab, mask_share: float, random_share: float, random_specials: bool) -> None:
        if vocab.mask is None:
            raise ConfigError("noise", "token_mask", "a tokenizer with a mask token", fix="train it with plmctl tokenize")
        if mask_share < 0 or random_share < 0 or mask_share + random_share > 1:
            raise ConfigError(
                "noise.mask_share", (mask_share, random_share), "mask_share + random_share in [0, 1], none negative"
            )
        self.mask_id = vocab.mask
        self.masked, self.changed = (np.uint64(share * 2**32) for share in (mask_share, mask_share + random_share))
        self.choices = (np.arange(vocab.size) if random_specials else np.flatnonzero(~vocab.special)).astype(np.int32)

    def __call__(self, rows: Rows, spans: Spans, draws: Draws) -> Rows:
        seq = rows.seqs[rows.input]
        row, column = spans.tokens()
        flat = row * seq.ids.shape[1] + column
        ids, labels = seq.ids.copy(), np.full(seq.ids.shape, IGNORE, np.int32)
        labels.ravel()[flat] = old = ids.ravel()[flat]
        word = draws.words_at(rows.key, "token", row, column)
        fate = word >> HALF  # the upper half decides what happens, the lower one which token is shown
        new = np.where(fate < self.masked, self.mask_id, old)
        other = np.flatnonzero((fate >= self.masked) & (fate < self.changed))
        new[other] = self.choices[below(word[other].astype(np.uint32), len(self.choices))]
        ids.ravel()[flat] = new
        return rows.with_seq(rows.input, replace(seq, ids=ids)).with_targets(mlm=labels)
