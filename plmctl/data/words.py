"""The warning about Chinese text without marked words, for noise that hides complete words."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from plmctl.data.sample import sample_corpus
from plmctl.data.shards import Shards
from plmctl.text.sentences import CJK
from plmctl.text.tokenizer import Tokenizer

MENTIONED = 0.05  # a smaller share of Chinese tokens is not worth a warning
LONG = 3  # characters; more of them in the mean are no words
_CHINESE = re.compile(f"[{CJK}]")


def warn_of_missing_words(shards: Shards, tokenizer: Tokenizer) -> list[str]:
    """A line if much of the text is Chinese and no segmenter has marked its words."""
    settings = shards.manifest["settings"]
    if settings.get("segment") or settings["tokenizer"].get("segment"):
        return []
    chinese = np.array(
        [bool(_CHINESE.search(piece)) for piece in tokenizer.pieces(range(tokenizer.vocab.size))]
    )
    share = float(chinese[sample_corpus(shards.ids)].mean()) if len(shards.ids) else 0.0
    if share < MENTIONED:
        return []
    return [
        f"{share:.0%} of the tokens are Chinese without marked words: a character, or what is"
        " between two spaces counts as a word; tokenize with data.segment=jieba to mark words"
        " (extra: chinese)"
    ]


def describe_runs(sentences: Iterable[str], word: re.Pattern[str]) -> str:
    """A warning if much of the text is Chinese and `word` finds no words in it, only the characters
    between two marks of punctuation; else "".
    """
    all_letters, runs = 0, list[int]()  # lengths of the runs that have a Chinese character
    for sentence in sentences:
        for run in word.findall(sentence):
            all_letters += len(run)
            runs += [len(run)] if _CHINESE.search(run) else []
    if sum(runs) <= MENTIONED * all_letters or sum(runs) <= LONG * len(runs):
        return ""
    mean, share = sum(runs) / len(runs), sum(runs) / all_letters
    what = f"{share:.0%} of the letters are Chinese, in runs of {mean:.1f} characters"
    return f"{what} that count as a word each; data.segment=jieba finds words (extra: chinese)"
