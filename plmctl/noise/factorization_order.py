"""A random factorisation order (Yang et al., 2019, XLNet): spans are predicted, each token from
those before it in this order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from plmctl.core.batch import IGNORE, Rows, Seq
from plmctl.core.draws import HALF, Draws, below
from plmctl.core.errors import ConfigError
from plmctl.core.fields import Field
from plmctl.core.parts import part_of
from plmctl.noise.base import Noise
from plmctl.noise.groups import Lengths
from plmctl.noise.masking import (
    NoiseBudget,
    Shuffled,
    exclude,
    expand_runs,
    find_documents,
    share_out,
)
from plmctl.noise.spans import RandomSpans, Segmented
from plmctl.noise.units import Units, find_units
from plmctl.text.vocab import Vocab

SELECTIONS = ("published", "exact")


class Sections(NamedTuple):
    """Parts of documents, each with an order of its own."""

    start: np.ndarray  # [s] slot
    length: np.ndarray  # [s] tokens
    number: np.ndarray  # [s] in its document


@part_of("noise")
class FactorizationOrder(Noise):
    """Writes `tracks.order` and `targets.plm`: a query stream sees tokens of lower order, the
    content stream also those of its own.

    Tokens that are not predicted have the lowest order of their section, so all see them; predicted
    and special tokens have random ranks above it. About one token in `context` is predicted. An
    n-gram, n in 1..`most` with p(n) ~ 1/n, lies somewhere in a context of `context * n` tokens and
    begins at a word. Single tokens fill the rest of the budget. A document is cut into sections of
    `block` tokens (null: one section); a later one sees all of an earlier one, never the reverse.
    In rows that run backwards (`values.reversed`) n-grams are chosen in the order of the text:
    their first token there begins a word. `selection="exact"`: n-grams that never touch and cover
    the budget, each arrangement with the same probability. (Yang et al., 2019, arXiv:1906.08237,
    sec. 2.3, 2.4 and A.3: K = 6, n <= 5; zihangdai/xlnet, data_utils.py: _sample_mask, _local_perm
    with perm_size 256.) `whole_words=False`: n counts pieces, as that code does.

    One section with context 2, most 2 (budget 4 of 8 tokens):

        tokens       the  cat  sat  on   the  mat  to   day
        n-grams      1 before, "cat sat", 3 after (context 4); then 0 before, "to"; added: "mat"
        predicted     -    x    x    -    -    x    x    -
        order         0    3    1    0    0    4    2    0

    "sat" (1) is predicted from the tokens of order 0, "to" (2) also from "sat", and so on.

    Differs: single tokens that fill up the budget are never special ones; documents of a packed row
    share its budget by length.
    """

    reads = frozenset({"input", "tracks.word_start"})
    writes = frozenset({"tracks.order", "targets.plm"})
    changes = False
    fields: Mapping[str, Field] = {
        "tracks.order": Field(
            "[n, T]",
            "int",
            "rank of the token in the order of factorisation; what is not predicted comes first",
            lines="each",
        ),
        "targets.plm": Field(
            "[n, T]",
            "int",
            "id of a token that is predicted in the order of factorisation, IGNORE elsewhere",
            tokens=True,
        ),
    }

    def __init__(
        self,
        *,
        vocab: Vocab,
        context: float,
        most: int = 5,
        block: int | None = 256,
        whole_words: bool = False,
        selection: str = "published",
    ) -> None:
        for name, value, least in (
            ("context", context, 2),
            ("most", most, 1),
            ("block", block or 8, 8),
        ):
            if value < least:
                raise ConfigError(f"noise.{name}", value, f"at least {least}")
        if selection not in SELECTIONS:
            raise ConfigError("noise.selection", selection, f"one of {', '.join(SELECTIONS)}")
        self.vocab, self.context, self.block, self.whole_words = vocab, context, block, whole_words
        shares = 1 / np.arange(1, most + 1)
        self.sizes = Lengths(shares)
        self.budget = NoiseBudget(
            rate=1 / context, max_predictions=None, selection="exact", count_specials=False
        )
        self.spans: RandomSpans | None = None
        if selection == "exact":
            self.spans = RandomSpans(
                vocab=vocab,
                budget=self.budget,
                shares=shares,
                words=whole_words,
                sampler=Segmented(),
            )

    def __call__(self, rows: Rows, draws: Draws) -> Rows:
        seq = rows.seqs[rows.input]
        sections = self._sections(seq)
        permutation = _reading_order(rows, sections)
        text = _reorder(rows, permutation, self.vocab)
        units = find_units(text, self.vocab, words=True)
        spread = (
            self._spread(text, draws, units, sections)
            if self.spans is None
            else self._exact(text, draws)
        )
        chosen, special = np.empty_like(spread), np.empty_like(spread)
        chosen[permutation], special[permutation] = spread, ~units.ordinary
        order = self._order(rows, draws.child("order"), sections, chosen | special)
        targets = np.where(chosen, seq.ids.ravel(), IGNORE).astype(np.int32).reshape(seq.ids.shape)
        changed = seq.with_tracks(order=order.reshape(seq.ids.shape))
        return rows.with_seq(rows.input, changed).with_targets(plm=targets)

    def capacity(self, length: int) -> dict[str, int]:
        return {
            "plm": (
                max(1, int(length / self.context))
                if self.spans is None
                else self.budget.capacity(length)
            )
        }

    def _sections(self, seq: Seq) -> Sections:
        first, length = find_documents(seq)
        block = self.block or seq.ids.shape[1]
        count = -(-length // block)
        number = expand_runs(np.zeros_like(count), count)
        start = np.repeat(first, count) + number * block
        return Sections(start, np.minimum(block, np.repeat(first + length, count) - start), number)

    def _order(
        self, rows: Rows, draws: Draws, sections: Sections, ranked: np.ndarray
    ) -> np.ndarray:
        """[n*T] int32: 0, and for `ranked` tokens 1, 2, ... at random in each section, counted on
        from the sections before.
        """
        excluded = exclude(~ranked).reshape(rows.seqs[rows.input].ids.shape)
        count = np.append(0, np.cumsum(ranked, dtype=np.int32))
        count = count[sections.start + sections.length] - count[sections.start]
        ranked_slots, _ = _shuffle(rows, draws, sections, excluded).gather(
            expand_runs(sections.start, count)
        )
        order = np.zeros(len(ranked), np.int32)
        order[ranked_slots] = expand_runs(np.ones_like(count), count)
        later = sections.number > 0
        slots = expand_runs(sections.start[later], sections.length[later])
        order[slots] += np.repeat(
            sections.number[later] * ((self.block or 0) + 1), sections.length[later]
        ).astype(np.int32)
        return order

    def _exact(self, rows: Rows, draws: Draws) -> np.ndarray:
        assert self.spans is not None
        spans = self.spans(rows, draws.child("spans"))
        shape = rows.seqs[rows.input].ids.shape
        predicted = np.zeros(shape[0] * shape[1], bool)
        predicted[expand_runs(spans.row * shape[1] + spans.start, spans.length)] = True
        return predicted

    def _spread(self, rows: Rows, draws: Draws, units: Units, sections: Sections) -> np.ndarray:
        """[n*T] bool: the published sampler; each step chooses one n-gram in every section."""
        n, width = rows.seqs[rows.input].ids.shape
        row, column = np.divmod(sections.start, width)
        length = rows.seqs[rows.input].length
        total = np.where(length > 0, np.maximum(1, np.floor(length / self.context + 1e-9)), 0)
        left = share_out(total, sections.length, row, draws.uniform(rows.key, "share"))
        chosen = np.zeros(n * width, bool)
        slot = sections.start.copy()
        end = sections.start + sections.length
        open_, step = np.flatnonzero(left > 0), 0
        while len(open_):
            word = draws.words_at(rows.key, "span", row[open_], column[open_] + step * width)
            size = np.minimum(self.sizes((word >> HALF).astype(np.uint32)), left[open_])
            around = np.floor(size * self.context).astype(np.int64)
            before = below(word.astype(np.uint32), around)
            begin = np.minimum(slot[open_] + before, n * width - 1)
            # the next word that begins
            begin = np.where(units.begins[begin], begin, units.start[units.of_slot[begin] + 1])
            stop = self._stop(units, np.minimum(begin, n * width - 1), size, left[open_])
            # the last n-gram may not end the section
            good = (slot[open_] + before < end[open_]) & (stop < end[open_])
            open_, begin, stop = open_[good], begin[good], stop[good]
            chosen[expand_runs(begin, stop - begin)] = True
            left[open_] -= stop - begin
            slot[open_] = stop + (around - before)[good]
            open_, step = open_[(left[open_] > 0) & (slot[open_] < end[open_])], step + 1
        self._fill(rows, draws, units, sections, chosen, left)
        return chosen & units.ordinary

    def _stop(
        self, units: Units, begin: np.ndarray, size: np.ndarray, left: np.ndarray
    ) -> np.ndarray:
        """The ends of n-grams that begin at `begin`, at most `left` tokens further."""
        if not self.whole_words:
            return begin + size
        return np.minimum(
            units.start[np.minimum(units.of_slot[begin] + size, len(units.start) - 1)], begin + left
        )

    def _fill(
        self,
        rows: Rows,
        draws: Draws,
        units: Units,
        sections: Sections,
        chosen: np.ndarray,
        left: np.ndarray,
    ) -> None:
        """Choose `left` more single tokens of each section (in place)."""
        excluded = exclude(chosen | ~units.ordinary)
        order = _shuffle(
            rows, draws.child("fill"), sections, excluded.reshape(rows.seqs[rows.input].ids.shape)
        )
        slot, allowed = order.gather(expand_runs(sections.start, np.minimum(left, sections.length)))
        chosen[slot[allowed]] = True


def _reading_order(rows: Rows, sections: Sections) -> np.ndarray:
    """[n*T]: the slot that is read at each position if every section of a row that runs backwards
    is turned round.
    """
    n, width = rows.seqs[rows.input].ids.shape
    permutation = np.arange(n * width)
    backward = rows.values.get("reversed", np.zeros(n, bool))[sections.start // width]
    start, length = sections.start[backward], sections.length[backward]
    permutation[expand_runs(start, length)] = np.repeat(
        2 * start + length - 1, length
    ) - expand_runs(start, length)
    return permutation


def _reorder(rows: Rows, permutation: np.ndarray, vocab: Vocab) -> Rows:
    """The ids of `rows` in the order of `permutation`; in a row that runs backwards, a word starts
    with its last token.
    """
    seq = rows.seqs[rows.input]
    begins = seq.tracks["word_start"].astype(bool)
    turned = (permutation != np.arange(len(permutation))).reshape(begins.shape).any(1)
    if not turned.any():
        return rows
    ends = np.roll(begins | vocab.special.take(seq.ids), -1, axis=1)
    ends[:, -1] = True
    starts = np.where(turned[:, None], ends, begins).ravel()[permutation].reshape(begins.shape)
    changed = replace(seq, ids=seq.ids.ravel()[permutation].reshape(seq.ids.shape)).with_tracks(
        word_start=starts
    )
    return rows.with_seq(rows.input, changed)


def _shuffle(rows: Rows, draws: Draws, sections: Sections, excluded: np.ndarray) -> Shuffled:
    """The tokens of each section in random order."""
    shape = excluded.shape
    part = np.zeros(shape[0] * shape[1] + 1, np.int32)
    part[sections.start] = 1
    part[sections.start + sections.length] = 1
    part = part[:-1].reshape(shape)
    part[:, 0] = 0
    np.cumsum(part, axis=1, out=part)
    return Shuffled(rows, draws, excluded, part)
