"""A text in two (Raffel et al., 2020; after Liu et al., 2018): the encoder reads its beginning, the
decoder writes its rest.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from plmctl.core.batch import Rows
from plmctl.core.draws import Draws
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.noise.base import Noise
from plmctl.noise.masking import expand_runs
from plmctl.noise.moves import gather
from plmctl.text.vocab import Vocab


@part_of("noise")
class PrefixSplit(Noise):
    """Source `x_1 .. x_k eos`, target `x_{k+1} .. x_n eos`, k any of 1 .. n - 1 with the same
    probability.

    (Raffel et al., 2020, arXiv:1910.10683, sec. 3.3.1, table 4, "prefix language modeling", after
    Liu et al., 2018.) A special token that closes the row closes the target. Rows of one token have
    no target. Differs: packed documents are refused: ConfigError.
    """

    reads = frozenset({"text"})
    writes = frozenset({"source", "target"})
    removes = frozenset({"text"})

    def __init__(self, *, vocab: Vocab) -> None:
        end = vocab.eos if vocab.eos is not None else vocab.sep
        if end is None:
            allowed = "a tokenizer with an end-of-text token"
            raise ConfigError("noise", "prefix_split", allowed, fix="tokenizer=unigram")
        self.vocab, self.end = vocab, end

    def columns(self, length: int) -> dict[str, int]:
        return {"source": length, "target": length}

    def __call__(self, rows: Rows, draws: Draws) -> Rows:
        seq = rows.seqs["text"]
        if "document" in seq.tracks:
            allowed = "cuts rows of one text; these have several documents"
            raise ConfigError("noise", "prefix_split", allowed, fix="format.crossing=true")
        width = seq.ids.shape[1]
        first = np.arange(len(seq.ids)) * width  # [n] slot
        length = seq.length.astype(np.int64)
        last = seq.ids.ravel()[first + np.maximum(length - 1, 0)]
        body = length - (self.vocab.special[last] & (length > 0))  # [n] tokens without the end
        lot = draws.uniform(rows.key, "cut")
        cut = np.where(body < 2, body, 1 + (lot * np.maximum(body - 1, 1)).astype(np.int64))
        some = (body > 1).astype(np.int64)  # rows with a target; one more slot is for the end
        source, into = gather(seq, expand_runs(first, cut + some), cut + some, pad=self.vocab.pad)
        source.ids.ravel()[into[np.cumsum(cut + some)[some > 0] - 1]] = self.end
        size = (body - cut + 1) * some
        take = expand_runs(first + cut - 1, size)
        # the slot before the rest stands for the end, which comes behind it
        begin = np.cumsum(size) - size
        order = np.arange(len(take)) + 1
        order[(begin + size - 1)[some > 0]] = begin[some > 0]
        target, into = gather(seq, take[order], size, pad=self.vocab.pad)
        target.ids.ravel()[into[(begin + size - 1)[some > 0]]] = self.end
        seqs = {name: each for name, each in rows.seqs.items() if name != "text"}
        return replace(rows, seqs={**seqs, "source": source, "target": target})
