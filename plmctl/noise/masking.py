"""Masking noise in three choices: which tokens (`Select`), what the input shows instead, and what
the model predicts (`Corrupt`).

A published masking idea is one `Select` (tokens, whole words, n-grams, geometric spans, ...) with
one `Corrupt` (mask or replace each token, one sentinel a span, ...), both given to `Masking`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from plmctl.core.batch import IGNORE, Rows, Seq
from plmctl.core.draws import HALF, Draws, below
from plmctl.core.errors import ConfigError
from plmctl.core.fields import Field, Fields
from plmctl.noise.base import Noise, find_mask
from plmctl.text.vocab import Vocab

MASKED: Fields = {
    "targets.mlm": Field(
        "[n, T]",
        "int",
        "id of the token that the noise hid, IGNORE elsewhere",
        tokens=True,
        hidden=True,
    ),
    "spans.chosen": Field(
        "[m, 3]", "int", "row, start, length of each run of tokens that the noise chose"
    ),
}


class Spans(NamedTuple):
    """Chosen runs of tokens, each inside one row; runs do not overlap."""

    row: np.ndarray  # [m] int64
    start: np.ndarray  # [m] int64
    length: np.ndarray  # [m] int64, >= 0

    def tokens(self) -> tuple[np.ndarray, np.ndarray]:
        """(row, position) of every token in the spans, each [sum of lengths]."""
        if (self.length == 1).all():
            return self.row, self.start
        return np.repeat(self.row, self.length), expand_runs(self.start, self.length)


def expand_runs(start: np.ndarray, length: np.ndarray) -> np.ndarray:
    """`start[0], start[0]+1, ..., start[1], ...`: the members of runs, one run after the other.

    start [3, 10], length [2, 3] gives [3, 4, 10, 11, 12].
    """
    before = np.cumsum(length) - length
    return np.repeat(start - before, length) + np.arange(int(length.sum()))


def sum_before(size: np.ndarray, count: np.ndarray) -> np.ndarray:
    """Running sums of `size` that exclude the member itself and begin at 0 in each group of `count`
    members.

    size [5, 1, 2, 7], count [3, 1] gives [0, 5, 6, 0].
    """
    before = np.cumsum(size) - size
    begin = np.cumsum(count) - count
    filled = count > 0
    return before - np.repeat(before[begin[filled]], count[filled])


class Select:
    """Chooses tokens: `(rows, draws) -> Spans`; `capacity(length)` is the largest number of one
    row.
    """

    reads: frozenset[str] = frozenset({"input"})
    budget: NoiseBudget

    def __call__(self, rows: Rows, draws: Draws) -> Spans:
        """The chosen tokens of `rows`."""
        raise NotImplementedError(type(self).__name__)

    def capacity(self, length: int) -> int:
        """The largest number of tokens that it chooses from a row of `length`."""
        return self.budget.capacity(length)


class Corrupt:
    """Changes the chosen tokens and writes the labels: `(rows, spans, draws) -> Rows`."""

    writes: frozenset[str] = frozenset()

    def __call__(self, rows: Rows, spans: Spans, draws: Draws) -> Rows:
        """New rows with other ids at `spans`, and with targets."""
        raise NotImplementedError(type(self).__name__)


class Masking(Noise):
    """`corrupt(rows, select(rows))`. `static=N`: masks repeat after N epochs (N copies masked
    once); None: always fresh.
    """

    fields = MASKED

    def __init__(self, *, select: Select, corrupt: Corrupt, static: int | None = None) -> None:
        if static is not None and static < 1:
            allowed = "a number of epochs >= 1 after which masks repeat, or null (never)"
            raise ConfigError("noise.static", static, allowed)
        self.select, self.corrupt, self.static = select, corrupt, static
        self.reads, self.writes = select.reads, corrupt.writes

    def __call__(self, rows: Rows, draws: Draws) -> Rows:
        draws = draws if self.static is None else draws.repeat(self.static)
        return self.corrupt(rows, self.select(rows, draws.child("select")), draws.child("corrupt"))

    def capacity(self, length: int) -> dict[str, int]:
        targets = [
            name.removeprefix("targets.")
            for name in self.corrupt.writes
            if name.startswith("targets.")
        ]
        return {name: self.select.capacity(length) for name in targets}


class NoiseBudget:
    """The number of tokens that are chosen from a row.

    `selection="exact"`: `min(max_predictions, max(1, round(rate * length)))` (BERT,
    create_pretraining_data.py); `selection="probabilistic"`: `floor(rate * length + u)`, u ~ U[0,
    1) (RoBERTa's code, so short rows may get none); `selection="ceiling"`: `ceil(rate * length)`
    (SpanBERT's code). `length` counts all tokens of the row; for "ceiling" only the tokens that are
    not special, as SpanBERT's code does. `count_specials` overrides this. Documents of a packed row
    share its budget in proportion to their lengths, see `share_out`.
    """

    SELECTIONS = ("exact", "probabilistic", "ceiling")

    def __init__(
        self,
        *,
        rate: float,
        max_predictions: int | None,
        selection: str,
        count_specials: bool | None = None,
    ) -> None:
        if not 0 < rate < 1:
            raise ConfigError("noise.rate", rate, "0 < rate < 1")
        if max_predictions is not None and max_predictions < 1:
            raise ConfigError(
                "noise.max_predictions", max_predictions, "at least 1, or null (no limit)"
            )
        if selection not in self.SELECTIONS:
            raise ConfigError("noise.selection", selection, f"one of {', '.join(self.SELECTIONS)}")
        self.rate = rate
        self.limit = max_predictions
        self.selection = selection
        self.count_specials = selection != "ceiling" if count_specials is None else count_specials

    def of_rows(self, rows: Rows, draws: Draws, counted: np.ndarray | None = None) -> np.ndarray:
        """[n] int64: the budget of each row; 0 for an empty one.

        Args:
            counted: [n, T] bool, the tokens that count where specials do not; None: all.
        """
        length = rows.seqs[rows.input].length if counted is None else counted.sum(1)
        rounded = {
            # rint rounds halves to even, as Python's round
            "exact": lambda: np.maximum(1, np.rint(self.rate * length)),
            "probabilistic": lambda: np.floor(
                self.rate * length + draws.uniform(rows.key, "rounding")
            ),
            "ceiling": lambda: np.ceil(self.rate * length),
        }
        budget = rounded[self.selection]()
        if self.limit is not None:
            budget = np.minimum(budget, self.limit)
        return np.where(length > 0, budget, 0).astype(np.int64)

    def of_documents(
        self, rows: Rows, draws: Draws, counted: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The budget of each document, or of each row without that track.

        Returns:
            (first, budget), each [m]: the first slot of the document (flattened), and its share.
        """
        n, width = rows.seqs[rows.input].ids.shape
        total = self.of_rows(rows, draws, counted)
        document = rows.seqs[rows.input].tracks.get("document")
        if document is None:
            return np.arange(n) * width, total
        first = np.flatnonzero(find_document_begins(document))
        size = (
            np.diff(first, append=n * width)
            if counted is None
            else np.add.reduceat(counted.ravel(), first, dtype=np.int64)
        )
        size = np.where(document.ravel()[first] >= 0, size, 0)
        return first, share_out(total, size, first // width, draws.uniform(rows.key, "share"))

    def capacity(self, length: int) -> int:
        """The largest budget of a row of `length` tokens."""
        most = (
            max(1, round(self.rate * length))
            if self.selection == "exact"
            else int(self.rate * length) + 1
        )
        return most if self.limit is None else min(most, self.limit)


def share_out(
    total: np.ndarray, size: np.ndarray, row: np.ndarray, offset: np.ndarray
) -> np.ndarray:
    """[s]: each row's `total` divided among its parts in proportion to their `size`; each share is
    within one of the exact share.

    `floor(total * end / size of the row + offset) - floor(total * begin / size of the row +
    offset)`, offset ~ U[0, 1) for each row. A total of 4 over sizes 3, 5, 2 with offset 0.3:

        begin, end of the parts       0..3        3..8        8..10
        4 * edge / 10 + 0.3           0.3  1.5    1.5  3.5    3.5  4.3
        floor                         0    1      1    3      3    4
        share                         1           2           1
    """
    row_size = np.bincount(row, weights=size, minlength=len(total))
    begin = np.cumsum(size) - size
    begin = begin - (np.cumsum(row_size) - row_size)[row]
    scale = (total / np.maximum(row_size, 1))[row]
    edges = [np.floor(scale * edge + offset[row] + 1e-9) for edge in (begin, begin + size)]
    return (edges[1] - edges[0]).astype(np.int64)


def find_document_begins(document: np.ndarray) -> np.ndarray:
    """[n, T] bool: the first token of each document (or of its padding) in each row."""
    begins = np.ones(document.shape, bool)
    np.not_equal(document.ravel()[1:], document.ravel()[:-1], out=begins.ravel()[1:])
    begins[:, 0] = True
    return begins


def find_documents(seq: Seq) -> tuple[np.ndarray, np.ndarray]:
    """(first slot, length), each [m]: of every document that has tokens, or of every such row
    without that track.
    """
    width = seq.ids.shape[1]
    if "document" not in seq.tracks:
        some = np.flatnonzero(seq.length > 0)
        return some * width, seq.length[some].astype(np.int64)
    first = np.flatnonzero(find_document_begins(seq.tracks["document"]))
    length = np.diff(first, append=seq.ids.size)
    real = seq.tracks["document"].ravel()[first] >= 0
    return first[real], length[real]


def exclude(unwanted: np.ndarray) -> np.ndarray:
    """uint32 of the same shape: all ones where `unwanted` is True, else zero, as `Shuffled` needs
    it.
    """
    return np.negative(unwanted.astype(np.int32)).view(np.uint32)


class Shuffled:
    """The tokens of every document in random order; excluded tokens (`[n, T]` uint32, all ones or
    zero) come last.

    `group` [n, T]: other parts of the rows instead of documents, numbered in order.
    Every token gets a random number, an excluded one the largest. The numbers are sorted as
    [document | random | column], so that there are no ties, no argsort is needed and documents stay
    in place. `flip` removes the preference for low columns where the random parts agree.

        tokens             a     b     c   | d     e        the document ends after c; b is excluded
        random             7     max   2   | 5     1
        keys               0.7.0 0.max.1 0.2.2 | 1.5.3 1.1.4
        sorted             0.2.2 0.7.0 0.max.1 | 1.1.4 1.5.3
        the order is       c     a     (b) | e     d
    """

    def __init__(
        self, rows: Rows, draws: Draws, excluded: np.ndarray, group: np.ndarray | None = None
    ) -> None:
        seq = rows.seqs[rows.input]
        self.width = seq.ids.shape[1]
        document = seq.tracks.get("document") if group is None else group
        bits = (self.width - 1).bit_length()
        # document, column and at least ten random bits fit into 32
        narrow = document is not None and 2 * bits <= 22
        spare = np.uint32(bits if narrow else 0)
        self.low, self.largest = np.uint32((1 << bits) - 1), ~np.uint32(0) >> spare
        self.flip = draws.bits(rows.key, "flip", 1)[:, 0] & self.low  # [n]
        order = draws.bits(rows.key, "order", self.width)
        if narrow:
            order >>= spare
            excluded = excluded >> spare
        order &= ~self.low
        order |= np.arange(self.width, dtype=np.uint32) ^ self.flip[:, None]
        order |= excluded
        if document is not None:
            word, by = (np.dtype(np.uint32), 32 - bits) if narrow else (np.dtype(np.uint64), 32)
            order = order | np.left_shift(document.astype(word), word.type(by))
        order.sort(axis=1)
        self.order = order.ravel()

    def gather(self, slot: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The tokens that stand at `slot` (flattened) in the random order.

        Returns:
            (their own slots, allowed); the slot of an excluded token has no meaning.
        """
        key = self.order[slot].astype(np.uint32) & self.largest
        row = slot // self.width
        column = np.minimum(key & self.low ^ self.flip[row], np.uint32(self.width - 1))
        return row * self.width + column, key != self.largest


def list_ordinary(vocab: Vocab, sample: np.ndarray | None = None) -> np.ndarray:
    """int32 [k]: every id that is not special, or those of `sample`, repeated as often as they
    occur there.
    """
    ids = np.arange(vocab.size) if sample is None else sample
    return ids[~vocab.special[ids]].astype(np.int32)


class MaskOrReplace(Corrupt):
    """Each chosen token becomes the mask token (`mask_share`), a random one (`random_share`), or
    stays; all are predicted.

    BERT draws the random token from the whole vocabulary (`random_specials=True`), RoBERTa from its
    ordinary tokens; with a `sample` of the corpus it is an ordinary token of that, so that frequent
    tokens are drawn more often.
    """

    writes = frozenset({"targets.mlm"})

    def __init__(
        self,
        *,
        vocab: Vocab,
        mask_share: float,
        random_share: float,
        random_specials: bool,
        sample: np.ndarray | None = None,
    ) -> None:
        self.mask_id = find_mask(vocab, "token_mask")
        if mask_share < 0 or random_share < 0 or mask_share + random_share > 1:
            allowed = "mask_share + random_share in [0, 1], none negative"
            raise ConfigError("noise.mask_share", (mask_share, random_share), allowed)
        if mask_share == random_share == 0:
            fix = "noise.token_mask.mask_share=0.8, or noise=[]"
            allowed = "something to hide: every token that is predicted stays visible"
            raise ConfigError("noise.mask_share", (0, 0), allowed, fix=fix)
        self.masked, self.changed = (
            np.uint64(share * 2**32) for share in (mask_share, mask_share + random_share)
        )
        self.choices = (
            np.arange(vocab.size, dtype=np.int32)
            if random_specials
            else list_ordinary(vocab, sample)
        )

    def __call__(self, rows: Rows, spans: Spans, draws: Draws) -> Rows:
        return self.show(rows, spans, draws)

    def show(self, rows: Rows, spans: Spans, draws: Draws, lot: np.ndarray | None = None) -> Rows:
        """The rows with the tokens of `spans` hidden.

        Args:
            lot: 32 random bits for each token, which decide what it becomes; None: drawn here.
        """
        seq = rows.seqs[rows.input]
        row, column = spans.tokens()
        flat = row * seq.ids.shape[1] + column
        ids, labels = seq.ids.copy(), np.full(seq.ids.shape, IGNORE, np.int32)
        labels.ravel()[flat] = old = ids.ravel()[flat]
        word = draws.words_at(rows.key, "token", row, column)
        # the upper half decides what happens, the lower one which token is shown
        fate = word >> HALF if lot is None else lot
        new = np.where(fate < self.masked, self.mask_id, old)
        other = np.flatnonzero((fate >= self.masked) & (fate < self.changed))
        new[other] = self.choices[below(word[other].astype(np.uint32), len(self.choices))]
        ids.ravel()[flat] = new
        return rows.with_seq(rows.input, replace(seq, ids=ids)).with_targets(mlm=labels)
