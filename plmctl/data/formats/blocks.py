"""Fixed blocks of tokens: documents joined to one stream (GPT), or packed so that none sees
another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from plmctl.core.batch import Rows
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.data.formats.base import Format, Plan
from plmctl.data.formats.carried import Wanted
from plmctl.data.formats.edges import Stream, document_edges
from plmctl.data.formats.packing import best_fit_decreasing, cut_chunks
from plmctl.data.formats.pieces import lay_rows, plan_pieces
from plmctl.text.template import Wrap, find_special, find_wraps
from plmctl.text.vocab import Vocab

if TYPE_CHECKING:
    from plmctl.data.shards import Shards


@part_of("format")
class Blocks(Format):
    """Rows of `max_length` tokens in one of two ways.

    `crossing=True`: all documents one after the other, each closed by the end-of-text token, cut
    every `max_length` tokens; nothing marks a document to the model (Radford et al., 2018, sec.
    3.1; 2019, sec. 2.1 and its public reproductions). `crossing=False`: documents are cut only
    where they are longer than a row, and the chunks are packed best-fit-decreasing (Ding et al.,
    2024, arXiv:2404.10830, sec. 3); positions restart and `tracks.document` keeps neighbours apart.
    `specials=True` puts the tokenizer's single-segment template (cls ... sep) around each chunk;
    without it a document ends with the end-of-text token where the tokenizer has one.
    """

    copies = 1

    def __init__(self, *, vocab: Vocab, max_length: int, crossing: bool, specials: bool) -> None:
        if crossing and specials:
            allowed = "false with format.crossing=true (only the end-of-text token is put between)"
            raise ConfigError("format.specials", True, allowed)
        self.vocab = vocab
        self.max_length = max_length
        self.crossing = crossing
        self.specials = specials
        isolated = set() if crossing else {"tracks.document", "tracks.position"}
        self.provides = frozenset({"text", *self.carried, *isolated})
        closing = (
            Wrap() if end_of_text(vocab) is None and not crossing else make_closing_wrap(vocab)
        )
        # inside, at the end of a document
        self.kinds = find_wraps(vocab, vocab.single) if specials else [Wrap(), closing]
        if max_length <= self.kinds[-1].size:
            allowed = f"more than the {self.kinds[-1].size} special tokens of a row"
            raise ConfigError("format.max_length", max_length, allowed)

    def plan(self, shards: Shards, *, seed: int, epoch: int, input_length: int) -> Plan:
        """The same rows in every epoch; only their order changes."""
        # the end-of-text token counts as the document's last token
        ends = 0 if self.specials else self.kinds[1].size
        stream = Stream.of(document_edges(shards), ends)
        if self.crossing:
            low = np.arange(0, stream.edges[-1], input_length)
            count, start, size, closing = stream.cut(
                low, np.minimum(low + input_length, stream.edges[-1])
            )
            row_start = np.concatenate([[0], np.cumsum(count)])
        else:
            around = self.kinds[0].size
            low, size = cut_chunks(stream.edges, input_length - around)
            order, row_start = best_fit_decreasing(size + around, input_length)
            _, start, size, closing = stream.cut(low[order], (low + size)[order])
        return plan_pieces(
            shards=shards,
            width=input_length,
            row_start=row_start,
            start=start,
            size=size,
            kind=closing,
            kinds=self.kinds,
        )

    def rows(self, shards: Shards, plan: Plan, index: np.ndarray, wanted: Wanted = None) -> Rows:
        layout = lay_rows(shards, plan, index, self.kinds, self.vocab, wanted)
        seq = layout.seq if self.crossing else layout.isolate(layout.piece, layout.begin)
        return Rows(key=index, seqs={"text": seq}, spans=layout.spans)


def end_of_text(vocab: Vocab) -> int | None:
    """The token that ends a document: `eos`, or else `sep`."""
    return vocab.eos if vocab.eos is not None else vocab.sep


def make_closing_wrap(vocab: Vocab) -> Wrap:
    """The end-of-text token after a stretch that ends its document.

    Raises:
        ConfigError: if the tokenizer has no such token.
    """
    end = end_of_text(vocab)
    return Wrap((), (find_special(vocab, "eos") if end is None else end,))
