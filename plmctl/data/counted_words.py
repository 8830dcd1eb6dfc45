"""The number of words that a run reads, as the rules of shared tasks count them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from plmctl.core.batch import Rows
from plmctl.core.collate import READ
from plmctl.core.errors import ConfigError
from plmctl.text.letters import count_unspaced

if TYPE_CHECKING:
    from plmctl.data.shards import Shards

WORDS = "words"
FIELD = f"tracks.{WORDS}"
PART = 1 << 22  # tokens whose words are counted at once
# characters between two spaces, in the mean; no language that writes spaces has as many
LONGEST = 15.0
LOOKED = 1 << 12  # tokens whose letters are looked at


def has_marked_words(shards: Shards) -> bool:
    """Whether a segmenter has marked the words of a text (data.segment)."""
    segmented = shards.manifest.get("settings", {}).get("segment")
    by_characters = shards.manifest["tokenizer"]["kind"] == "char"
    return "word_start" in shards.tracks and bool(segmented or not by_characters)


def count_words(shards: Shards) -> int:
    """The words of a text, all its documents once."""
    if has_marked_words(shards):
        return int(np.count_nonzero(shards.tracks["word_start"]))
    return int(shards.counts[WORDS].sum())


def mark_words(shards: Shards) -> Shards:
    """The same tokens with `tracks.words`: how many words each token stands for.

    The w words of a document, text between white space, are divided evenly among its n tokens:
    token k stands for `floor((k + 1) w / n) - floor(k w / n)` of them. So a document has exactly w
    words, in whatever rows it is read. Where a segmenter has marked words, the first token of a
    word stands for it.
    """
    marked = copy.copy(shards)
    if has_marked_words(shards):
        words = np.asarray(shards.tracks["word_start"]).astype(np.uint8)
    else:
        ends = np.asarray(shards.sentences)[np.asarray(shards.documents)]  # [D + 1] offsets
        held = np.asarray(shards.counts[WORDS], np.int64)
        most = np.max(-(-held // np.maximum(np.diff(ends), 1)), initial=1)
        words = np.zeros(len(shards.ids), np.min_scalar_type(int(most)))
        for begin in range(0, len(words), PART):
            token = np.arange(begin, min(begin + PART, len(words)))
            document = np.searchsorted(ends, token, side="right") - 1
            place, size = token - ends[document], np.diff(ends)[document]
            before, after = ((place + k) * held[document] // size for k in (0, 1))
            words[token] = after - before
    marked.tracks = {**shards.tracks, WORDS: words}
    return marked


def sum_words(rows: Rows) -> Rows:
    """The rows with `values.words_read`, the words of their text, instead of `tracks.words`; rows
    without this track as they are.
    """
    read = [seq for seq in rows.seqs.values() if WORDS in seq.tracks and not seq.view]
    if not read:
        return rows
    words = sum(seq.tracks[WORDS].sum(1, dtype=np.int64) for seq in read)
    seqs = {
        name: replace(seq, tracks={key: x for key, x in seq.tracks.items() if key != WORDS})
        for name, seq in rows.seqs.items()
    }
    return replace(rows, seqs=seqs, values={**rows.values, READ: words})


def has_spaces(words: int, characters: int, first: str) -> bool:
    """Whether a text has spaces between its words, so that these can be counted.

    There are at most `LONGEST` characters between two spaces, and at most half of its letters are
    of a script without spaces.

    Args:
        words: Its words, text between white space.
        first: The beginning of the text.
    """
    letters = sum(map(str.isalpha, first))
    return characters <= LONGEST * max(1, words) and count_unspaced(first) <= letters / 2


def check_words(
    texts: Iterable[Shards], decode: Callable[[Sequence[int]], str], setting: str, value: object
) -> None:
    """ConfigError for a text of which nobody knows where its words end (`has_spaces`).

    Args:
        decode: The text of some tokens.
        value: The value of the setting.
    """
    for shards in texts:
        if has_marked_words(shards):
            continue
        words, characters = (int(shards.counts[name].sum()) for name in (WORDS, "characters"))
        first = decode(np.asarray(shards.ids[:LOOKED]).tolist())
        if has_spaces(words, characters, first):
            continue
        allowed = (
            "needs a text with spaces between its words, or with marked words;"
            f" {shards.given} has {characters / max(1, words):.0f} characters between two spaces"
        )
        fix = "data.segment=jieba marks Chinese words; or train.words=null train.tokens=1e8"
        raise ConfigError(setting, value, allowed, fix=fix)


def describe_repeats(texts: Iterable[Shards], words: int) -> str:
    """A line on a budget of `words` that is larger than the text: how often it is repeated."""
    whole = sum(map(count_words, texts))
    if not 0 < whole < words:
        return ""
    return (
        f"{words:,} words are {words / whole:.2f} times the {whole:,} words of the training text,"
        " whose repeats are counted"
    )
