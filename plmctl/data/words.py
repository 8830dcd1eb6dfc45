"""Whether the words of a corpus are known to noise that hides whole words."""

from __future__ import annotations

import re

import numpy as np

from plmctl.data.sample import corpus_sample
from plmctl.data.shards import Shards
from plmctl.text.sentences import CJK
from plmctl.text.tokenizer import Tokenizer

MENTIONED = 0.05  # of the tokens: less Chinese than this changes little
_CHINESE = re.compile(f"[{CJK}]")


def without_words(shards: Shards, tokenizer: Tokenizer) -> list[str]:
    """A line where much of the text is Chinese and no segmenter has said where its words are."""
    settings = shards.manifest["settings"]
    if settings.get("segment") or settings["tokenizer"].get("segment"):
        return []
    chinese = np.array(
        [bool(_CHINESE.search(piece)) for piece in tokenizer.pieces(range(tokenizer.vocab.size))]
    )
    share = float(chinese[corpus_sample(shards.ids)].mean()) if len(shards.ids) else 0.0
    if share < MENTIONED:
        return []
    return [
        f"{share:.0%} of the tokens are Chinese, whose words nobody has marked: a character, or"
        " what is between two spaces, counts as a word; data.segment=jieba of the text marks them"
        " (extra: chinese)"
    ]
