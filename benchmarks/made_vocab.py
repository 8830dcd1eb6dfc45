"""A vocabulary like BERT's, for benchmarks on tokens that are made up."""

from __future__ import annotations

import numpy as np

from plmctl.text.vocab import Vocab

SIZE = 30_522
_SPECIAL = np.arange(SIZE) < 999
VOCAB = Vocab(
    size=SIZE,
    pad=0,
    unk=100,
    cls=101,
    sep=102,
    mask=103,
    bos=None,
    eos=None,
    special=_SPECIAL,
    word_start=~_SPECIAL,
)
