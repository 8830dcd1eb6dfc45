"""A random order of factorisation (Yang et al., 2019, XLNet): spans are predicted, each token
from those before it there.
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
    """Parts of documents that are ordered by themselves."""

    start: np.ndarray  # [s] slot
    length: np.ndarray  # [s] tokens
    number: np.ndarray  # [s] in its document


@part_of("noise")
class FactorizationOrder(Noise):
    """`tracks.order` and `targets.plm`: a token sees those of lower order, its content also those
    of its own order.

    Tokens that are not predicted have the lowest order of their section, so all see them; predicted
    tokens and the special ones have random ranks above it. About one token in `context` is
    predicted: an n-gram, n in 1..`most` with p(n) ~ 1/n, somewhere in a context of `context * n`
    tokens, beginning at a word; single tokens fill the budget up. A document is cut into sections
    of `block` tokens; a later one sees all of an earlier one, never the other way round (null: one
    section). In rows that run backwards (`values.reversed`) n-grams are chosen in the order of the
    text: their first token there begins a word. `selection="exact"`: n-grams that never touch and
    cover the budget, every arrangement as likely. (Yang et al., 2019, arXiv:1906.08237, sec. 2.3,
    2.4 and A.3: K = 6, n <= 5; zihangdai/xlnet, data_utils.py: _sample_mask, _local_perm with
    perm_size 256.) `whole_words=False`: n counts pieces, as that code does.
    Differs: single tokens that fill up are never special ones; documents of a packed row share its
    budget by length.
    """

    reads = frozenset({"input", "tracks.word_start"})
    writes = frozenset({"tracks.order", "targets.plm"})
    changes = False
    fields: Mapping[str, Field] = {
        "tracks.order": Field(
            "[n, T]",
            "int",
            "place of the token in the order of factorisation; what is not predicted comes first",
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
        place = _reading_order(rows, sections)
        text = _reorder(rows, place, self.vocab)
        found = find_units(text, self.vocab, words=True)
        spread = (
            self._spread(text, draws, found, sections)
            if self.spans is None
            else self._exact(text, draws)
        )
        chosen, special = np.empty_like(spread), np.empty_like(spread)
        chosen[place], special[place] = spread, ~found.ordinary
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
        """[n*T] int32: 0 and, for `ranked` tokens, 1, 2, ... at random in each section, from
        where the sections before end.
        """
        excluded = exclude(~ranked).reshape(rows.seqs[rows.input].ids.shape)
        count = np.append(0, np.cumsum(ranked, dtype=np.int32))
        count = count[sections.start + sections.length] - count[sections.start]
        place, _ = _shuffle(rows, draws, sections, excluded).at(expand_runs(sections.start, count))
        order = np.zeros(len(ranked), np.int32)
        order[place] = expand_runs(np.ones_like(count), count)
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
        chosen = np.zeros(shape[0] * shape[1], bool)
        chosen[expand_runs(spans.row * shape[1] + spans.start, spans.length)] = True
        return chosen

    def _spread(self, rows: Rows, draws: Draws, found: Units, sections: Sections) -> np.ndarray:
        """[n*T] bool: the published sampler, all sections one n-gram further at each step."""
        n, width = rows.seqs[rows.input].ids.shape
        row, column = np.divmod(sections.start, width)
        length = rows.seqs[rows.input].length
        total = np.where(length > 0, np.maximum(1, np.floor(length / self.context + 1e-9)), 0)
        left = share_out(total, sections.length, row, draws.uniform(rows.key, "share"))
        chosen, at, end = (
            np.zeros(n * width, bool),
            sections.start.copy(),
            sections.start + sections.length,
        )
        open_, step = np.flatnonzero(left > 0), 0
        while len(open_):
            word = draws.words_at(rows.key, "span", row[open_], column[open_] + step * width)
            size = np.minimum(self.sizes((word >> HALF).astype(np.uint32)), left[open_])
            around = np.floor(size * self.context).astype(np.int64)
            before = below(word.astype(np.uint32), around)
            begin = np.minimum(at[open_] + before, n * width - 1)
            # the next word that begins
            begin = np.where(found.begins[begin], begin, found.start[found.of_slot[begin] + 1])
            stop = self._stop(found, np.minimum(begin, n * width - 1), size, left[open_])
            # the last n-gram may not end the section
            good = (at[open_] + before < end[open_]) & (stop < end[open_])
            open_, begin, stop = open_[good], begin[good], stop[good]
            chosen[expand_runs(begin, stop - begin)] = True
            left[open_] -= stop - begin
            at[open_] = stop + (around - before)[good]
            open_, step = open_[(left[open_] > 0) & (at[open_] < end[open_])], step + 1
        self._fill(rows, draws, found, sections, chosen, left)
        return chosen & found.ordinary

    def _stop(
        self, found: Units, begin: np.ndarray, size: np.ndarray, left: np.ndarray
    ) -> np.ndarray:
        """Where n-grams end that begin at `begin`, at most `left` tokens further."""
        if not self.whole_words:
            return begin + size
        return np.minimum(
            found.start[np.minimum(found.of_slot[begin] + size, len(found.start) - 1)], begin + left
        )

    def _fill(
        self,
        rows: Rows,
        draws: Draws,
        found: Units,
        sections: Sections,
        chosen: np.ndarray,
        left: np.ndarray,
    ) -> None:
        """Choose `left` more tokens of each section (in place)."""
        excluded = exclude(chosen | ~found.ordinary)
        order = _shuffle(
            rows, draws.child("fill"), sections, excluded.reshape(rows.seqs[rows.input].ids.shape)
        )
        place, allowed = order.at(expand_runs(sections.start, np.minimum(left, sections.length)))
        chosen[place[allowed]] = True


def _reading_order(rows: Rows, sections: Sections) -> np.ndarray:
    """[n*T] which slot comes at each place if every section of a row that runs backwards is
    turned round.
    """
    n, width = rows.seqs[rows.input].ids.shape
    place = np.arange(n * width)
    backward = rows.values.get("reversed", np.zeros(n, bool))[sections.start // width]
    start, length = sections.start[backward], sections.length[backward]
    place[expand_runs(start, length)] = np.repeat(2 * start + length - 1, length) - expand_runs(
        start, length
    )
    return place


def _reorder(rows: Rows, place: np.ndarray, vocab: Vocab) -> Rows:
    """The ids of `rows` in the order of `place`; where they run backwards, a word starts with
    its last token in the row.
    """
    seq = rows.seqs[rows.input]
    begins = seq.tracks["word_start"].astype(bool)
    turned = (place != np.arange(len(place))).reshape(begins.shape).any(1)
    if not turned.any():
        return rows
    ends = np.roll(begins | vocab.special.take(seq.ids), -1, axis=1)
    ends[:, -1] = True
    starts = np.where(turned[:, None], ends, begins).ravel()[place].reshape(begins.shape)
    changed = replace(seq, ids=seq.ids.ravel()[place].reshape(seq.ids.shape)).with_tracks(
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
