"""The hidden words that have senses (Levine et al., 2020, SenseBERT): what supersense prediction
asks for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property

import numpy as np

from plmctl.core.batch import IGNORE, Rows
from plmctl.core.draws import Draws
from plmctl.core.fields import Field
from plmctl.core.parts import part_of
from plmctl.knowledge.known import TextSample
from plmctl.knowledge.senses import Senses
from plmctl.noise.base import Noise
from plmctl.noise.units import find_units
from plmctl.text.vocab import Vocab


@part_of("noise")
class SenseWords(Noise):
    """Writes `spans.senses`: every word whose tokens are all predicted and that may have senses;
    changes nothing. It stands behind a masking noise.

    A word is one token; with `average`, words of several tokens count, too. (Levine et al., 2020,
    arXiv:1908.05646, sec. 3.2: no sense for pieces of words; sec. 3.4, "average embedding".)
    """

    reads = frozenset({"input", "targets.mlm", "tracks.word_start"})
    writes = frozenset({"spans.senses"})
    changes = False
    fields: Mapping[str, Field] = {
        "spans.senses": Field(
            "[m, 4]", "int", "row, start, length of a hidden word, and its senses as bits"
        )
    }

    def __init__(self, *, vocab: Vocab, senses: Senses, average: bool = False) -> None:
        self.vocab, self.senses, self.average = vocab, senses, average
        self._known: dict[bytes, int] = {}  # senses of words of several tokens

    @cached_property
    def bits(self) -> np.ndarray:
        """[V] int64: the senses of each token."""
        return self.senses.of_vocab(self.vocab)

    def __call__(self, rows: Rows, draws: Draws) -> Rows:
        shown = _restore(rows)
        ids, width = shown.seqs[rows.input].ids.ravel(), shown.seqs[rows.input].ids.shape[1]
        units = find_units(shown, self.vocab, words=True)
        hidden = (rows.targets["mlm"] != IGNORE).ravel()
        start, length = units.start[:-1], np.diff(units.start)
        whole = np.logical_and.reduceat(hidden, start) & units.ordinary[start]
        start, length = start[whole], length[whole]
        single = length == 1
        bits = np.where(single, self.bits[ids[start]], 0)
        if self.average:
            for number in np.flatnonzero(~single).tolist():
                at = start[number]
                bits[number] = self._look_up(ids[at : at + length[number]])
        some = bits != 0
        row, column = np.divmod(start[some], width)
        spans = np.stack([row, column, length[some], bits[some]], 1)
        return replace(rows, spans={**rows.spans, "senses": spans.astype(np.int64)})

    def describe_known(self, text: TextSample) -> str:
        """How many words of a text have senses."""
        return self.senses.describe_known(text)

    def _look_up(self, ids: np.ndarray) -> int:
        """The senses of the word that several tokens spell; 0 for one that begins before them."""
        key = ids.tobytes()
        if key not in self._known:
            assert self.bits is not None  # the vocabulary comes first
            begins = self.vocab.word_start[ids[0]]
            word = "".join(self.vocab.texts[token] for token in ids.tolist())
            self._known[key] = self.senses.of_word(word) if begins else 0
        return self._known[key]


def _restore(rows: Rows) -> Rows:
    """The rows with the tokens that noise has hidden."""
    seq, labels = rows.seqs[rows.input], rows.targets["mlm"]
    ids = np.where(labels == IGNORE, seq.ids, labels).astype(seq.ids.dtype)
    return rows.with_seq(rows.input, replace(seq, ids=ids))
