"""How much of a text is unknown to its tokenizer: a model learns and answers nothing of that."""

from __future__ import annotations

from typing import Any

import numpy as np

from plmctl.core.errors import DataError
from plmctl.text.vocab import Vocab

MOST = 0.5  # a text of which more is unknown is refused


def unknown_share(ids: Any, vocab: Vocab) -> float:
    """Of the tokens `ids` that stand for text, those that are unknown; 0 where the vocabulary
    has no token for that alone.
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


def told(share: float) -> str:
    """For people; nothing to say: ""."""
    return f"{share:.1%} of the tokens are unknown" if share else ""


def refuse_unknown(share: float, *, file: object = None, line: int | None = None, fix: str) -> None:
    """DataError where most of a text is unknown."""
    if share > MOST:
        why = (
            f"{share:.0%} of its tokens are unknown to the tokenizer,"
            " so that little of the text is left"
        )
        raise DataError(why, file=file, line=line, fix=fix)
