"""A vocabulary for checks that are made before there is a tokenizer."""

from __future__ import annotations

import numpy as np

from plmctl.text.vocab import Vocab

TINY = Vocab(
    size=8,
    pad=0,
    unk=1,
    cls=2,
    sep=3,
    mask=4,
    bos=5,
    eos=6,
    special=np.zeros(8, bool),
    word_start=np.zeros(8, bool),
    sentinels=(7,),
    spellings=("",) * 8,
    texts=("",) * 6 + ('"', ":"),
)  # stands in for a tokenizer that is not trained yet
