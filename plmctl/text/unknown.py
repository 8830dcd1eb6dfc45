"""The share of a text that its tokenizer does not know, and from which a model learns nothing."""

from __future__ import annotations

from typing import Any

import numpy as np

from plmctl.core.errors import DataError
from plmctl.text.vocab import Vocab

MOST = 0.5  # a text with a larger unknown share is refused


def unknown_share(ids: Any, vocab: Vocab) -> float:
    """The share of unknown tokens among the tokens `ids` that stand for text; 0 if the vocabulary
    has no token only for unknown text.
    """
    ids, others = (
        np.asarray(ids),
        (vocab.pad, vocab.cls, vocab.sep, vocab.mask, vocab.bos, vocab.eos),
    )
    if vocab.unk is None or vocab.unk in others:
        return 0.0
    unknown = int(np.count_nonzero(ids == vocab.unk))
    # a transform may add tokens behind those of the tokenizer, which are special
    ordinary = ids[ids < vocab.size]
    known = int(np.count_nonzero(~vocab.special[ordinary] & (ordinary != vocab.unk)))
    return unknown / max(1, unknown + known)


def describe_unknown(share: float) -> str:
    """The share in words, or "" if it is 0."""
    return f"{share:.1%} of the tokens are unknown" if share else ""


def refuse_unknown(share: float, *, file: object = None, line: int | None = None, fix: str) -> None:
    """Raise DataError if most of a text is unknown."""
    if share > MOST:
        why = (
            f"{share:.0%} of its tokens are unknown to the tokenizer,"
            " so that little of the text is left"
        )
        raise DataError(why, file=file, line=line, fix=fix)
