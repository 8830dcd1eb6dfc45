"""A vocabulary for checks that are made before there is a tokenizer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from plmctl.text.vocab import Vocab

_ROLES = ("cls", "sep", "mask", "bos", "eos")
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


def stand_in_for(vocab: Vocab) -> Vocab:
    """`TINY` without the special tokens that `vocab` lacks."""
    sentinels = TINY.sentinels if vocab.sentinels else ()
    absent: Any = {role: None for role in _ROLES if getattr(vocab, role) is None}
    return replace(TINY, sentinels=sentinels, **absent)
