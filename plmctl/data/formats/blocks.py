"""Fixed blocks of tokens: documents run together (GPT), or packed whole so that none sees another."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from plmctl.batch import Rows
from plmctl.data.formats.base import Format, Plan
from plmctl.data.formats.packing import best_fit_decreasing, chunks
from plmctl.data.formats.pieces import Wrap, lay, piece_plan, special, wraps
from plmctl.errors import ConfigError
from plmctl.text.vocab import Vocab

if TYPE_CHECKING:
    from plmctl.data.shards import Shards


class Blocks(Format):
    """Rows of `max_length` tokens in one of two ways.

    `crossing=True`: all documents one after the other, each closed by the end-of-text token, cut every `max_length` tokens;
    nothing marks a document to the model (Radford et al., 2018, sec. 3.1; 2019, sec. 2.1 and its public reproductions).
    `crossing=False`: documents are cut only where they are longer than a row, and the chunks are packed best-fit-decreasing
    (Ding et al., 2024, arXiv:2404.10830, sec. 3); positions restart and `tracks.document` keeps neighbours apart.
    `specials=True` puts the tokenizer's single-segment template (cls ... sep) around each chunk; without it a document ends
    with the end-of-text token where the tokenizer has one.
    """

    copies = 1

    def __init__(self, *, vocab: Vocab, max_length: int, crossing: bool, specials: bool) -> None:
        if crossing and specials:
            raise ConfigError(
                "format.specials", True, "false with format.crossing=true (only the end-of-text token is put between)"
            )
        self.vocab, self.max_length, self.crossing, self.specials = vocab, max_length, crossing, specials
        self.provides = frozenset(
            {"text", "tracks.word_start"} | (set() if crossing else {"tracks.document", "tracks.position"})
        )
        end = vocab.eos if vocab.eos is not None else vocab.sep
        closing = () if end is None and not crossing else (special(vocab, "eos") if end is None else end,)
        self.kinds = wraps(vocab, vocab.single) if specials else [Wrap(), Wrap((), closing)]  # inside, at the end of a document
        if max_length <= self.kinds[-1].size:
            raise ConfigError("format.max_length", max_length, f"more than the {self.kinds[-1].size} special tokens of a row")

    def plan(self, shards: Shards, *, seed: int, epoch: int, input_length: int) -> Plan:
        """The same in every epoch; only the order of rows changes."""
        edges = np.unique(np.asarray(shards.sentences)[np.asarray(shards.documents)])  # documents without tokens vanish
        ends = 0 if self.specials else self.kinds[1].size  # the end-of-text token counts as the document's last token
        edges = edges + ends * np.arange(len(edges))
        if self.crossing:
            row_edges = np.append(np.arange(0, edges[-1], input_length), edges[-1])
            cuts = np.union1d(edges, row_edges)
            start, size, row_start = cuts[:-1], np.diff(cuts), np.searchsorted(cuts, row_edges)
        else:
            around = self.kinds[0].size
            start, size = chunks(edges, input_length - around)
            order, row_start = best_fit_decreasing(size + around, input_length)
            start, size = start[order], size[order]
        document = np.searchsorted(edges, start, side="right") - 1
        closing = (start + size == edges[document + 1]) if ends else np.zeros(len(start), bool)
        return piece_plan(
            shards=shards, width=input_length, row_start=row_start, start=start - ends * document, size=size - ends * closing,
            kind=closing, kinds=self.kinds,
        )  # fmt: skip

    def rows(self, shards: Shards, plan: Plan, index: np.ndarray, wanted: frozenset[str] | None = None) -> Rows:
        layout = lay(shards, plan, index, self.kinds, self.vocab, wanted)
        seq = layout.seq
        if not self.crossing:
            position = np.arange(seq.ids.size).reshape(seq.ids.shape) - layout.fill(layout.begin)
            seq = seq.with_tracks(document=layout.fill(layout.piece.astype(np.int32)), position=position)
        return Rows(key=index, seqs={"text": seq})
