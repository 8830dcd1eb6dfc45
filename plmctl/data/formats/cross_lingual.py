"""Documents whose sentences alternate between two languages (Huang et al., 2019: Unicoder)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from plmctl.core.batch import Rows
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.data.formats.base import Format, Plan
from plmctl.data.formats.carried import Wanted
from plmctl.data.formats.packing import follow_links
from plmctl.data.formats.pairs import number_languages, read_parallel
from plmctl.data.formats.pieces import Pieces, lay_rows, plan_pieces
from plmctl.text.template import Wrap, find_wraps
from plmctl.text.vocab import Vocab

if TYPE_CHECKING:
    from plmctl.data.shards import Shards

SIDES = 4  # kinds of pieces of each side: inside of a row, first, last, alone in it


@part_of("format")
class CrossLingual(Format):
    """`cls x_1 y_2 x_3 y_4 ... sep`: consecutive lines of parallel text, every second one in its
    translation, as many as fit; `tracks.language` changes with them (Huang et al., 2019,
    arXiv:1909.00964, sec. 3.4: cross-lingual masked language model).

    A pair of empty lines ends a document, and a row with it. A sentence longer than a row loses its
    end. Languages are numbered as by `text_pair`.
    Differs: every second epoch begins with the translation, so that both sides are read; published
    is the first alone.
    """

    copies = 2
    parallel = True

    def __init__(self, *, vocab: Vocab, max_length: int) -> None:
        self.vocab, self.max_length = vocab, max_length
        self.whole = find_wraps(vocab, vocab.single)[0]
        if max_length <= self.whole.size:
            allowed = f"more than the {self.whole.size} special tokens of a row"
            raise ConfigError("format.max_length", max_length, allowed)
        before, after = self.whole.before, self.whole.after
        self.kinds = [Wrap((), ()), Wrap(before, ()), Wrap((), after), self.whole] * 2
        self.provides = frozenset({"text", "tracks.language", *self.carried})

    def languages(self, shards: Shards) -> int:
        return super().languages(shards) if "language" in shards.tracks else 2

    def plan(self, shards: Shards, *, seed: int, epoch: int, input_length: int) -> Plan:
        room = input_length - self.whole.size
        pairs = read_parallel(shards, "format=cross_lingual")
        starts = np.stack([pairs.a_start, pairs.b_start])
        sizes = np.stack([pairs.a_end - pairs.a_start, pairs.b_end - pairs.b_start])
        document = np.cumsum((sizes == 0).all(0))
        used = np.flatnonzero((sizes > 0).all(0))
        document = document[used]
        edges = np.flatnonzero(np.diff(document, prepend=-1, append=-1))
        number = np.arange(len(used)) - np.repeat(edges[:-1], np.diff(edges))  # in its document
        side = (number + epoch) % 2
        start, whole = starts[side, used], sizes[side, used]
        size = np.minimum(whole, room)
        end = np.cumsum(size)
        following = np.searchsorted(end, end - size + room, side="right")
        following = np.minimum(following, np.repeat(edges[1:], np.diff(edges)))
        row_start = follow_links(following)
        kind = np.zeros(len(used), np.int8)
        kind[row_start[:-1]] += 1
        kind[row_start[1:] - 1] += 2
        plan = plan_pieces(
            shards=shards,
            width=input_length,
            row_start=row_start,
            start=start,
            size=size,
            kind=kind + SIDES * side,
            kinds=self.kinds,
        )
        plan.report.update(
            cut=int((whole - size).sum()),
            dropped=len(shards.ids) - int(sizes[:, used].sum()),
            in_the_next_epoch=int(sizes[1 - side, used].sum()),
        )
        return plan

    def rows(self, shards: Shards, plan: Plan, index: np.ndarray, wanted: Wanted = None) -> Rows:
        layout = lay_rows(shards, plan, index, self.kinds, self.vocab, wanted)
        pieces, real = Pieces.of(plan, index), layout.piece >= 0
        language = np.zeros(len(real), np.int64)
        language[real] = number_languages(shards, pieces.start, pieces.kind // SIDES)
        seq = layout.seq.with_tracks(language=layout.fill(language).astype(np.int16))
        return Rows(key=index, seqs={"text": seq}, spans=layout.spans)
