"""A text as numbers of words, counted and kept in a file of its own, so that no more than the
vocabulary is in memory.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from plmctl.core.errors import DataError
from plmctl.knowledge.words import plain_words
from plmctl.storage.gate import open_file

FILE = "words.i32"
_SPACED = re.compile(r"\S+")
_WRITE = 1 << 16  # words between two writes
SPLITS = {"words": plain_words, "spaces": lambda: _SPACED}


@dataclass(frozen=True, eq=False)
class WordCorpus:
    """The frequent words of a text, and the text as their numbers.

    Args:
        words: the most frequent first.
        counts: int64 [V] of these.
        stream: int32 [n], words as they were met, from 1; 0 ends a sentence.
        place: int32, the number of each of them among `words`, -1 of rare ones and of the end.
    """

    words: list[str]
    counts: np.ndarray
    stream: np.ndarray
    place: np.ndarray

    @property
    def total(self) -> int:
        """How many words of the text are frequent ones."""
        return int(self.counts.sum())

    def read_blocks(self, size: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Whole sentences, of about `size` words together: int32 [n] numbers of words without rare
        ones, and int32 [n] of which sentence each is.
        """
        start = 0
        while start < len(self.stream):
            end = min(len(self.stream), start + size)
            while end < len(self.stream) and self.stream[end - 1] != 0:
                after = self.stream[end : end + size]
                ends = np.flatnonzero(after == 0)
                end += int(ends[0]) + 1 if len(ends) else len(after)
            block = np.asarray(self.stream[start:end])
            numbers = self.place[block]
            kept = numbers >= 0
            yield numbers[kept], np.cumsum(block == 0, dtype=np.int32)[kept]
            start = end

    def read_sentences(self) -> Iterator[list[str]]:
        """The text, a list of frequent words for each sentence."""
        for numbers, sentences in self.read_blocks(1 << 20):
            for part in np.split(numbers, np.flatnonzero(np.diff(sentences)) + 1):
                yield [self.words[number] for number in part]


def count_corpus(
    sentences: Iterable[str], folder: Path, *, least: int, split: str, lowercase: bool
) -> WordCorpus:
    """Count the words of a text, and write their numbers into a file in `folder`.

    Args:
        sentences: across which no window goes.
        least: rarer words are left out.
        split: The way to split text: "words" for runs of letters, "spaces" for the strings between
            spaces.
        lowercase: capital letters do not count.

    Raises:
        DataError: no two words are frequent enough.
    """
    pattern, file = SPLITS[split](), folder / FILE
    ids: dict[str, int] = {}
    counts, waiting = array("q", [0]), array("i")
    with open_file(file, "wb") as stream:
        for sentence in sentences:
            for word in pattern.findall(sentence.lower() if lowercase else sentence):
                number = ids.get(word)
                if number is None:
                    number = ids[word] = len(counts)
                    counts.append(0)
                counts[number] += 1
                waiting.append(number)
            waiting.append(0)
            if len(waiting) > _WRITE:
                waiting.tofile(stream)
                waiting = array("i")
        waiting.tofile(stream)
    seen = np.array(counts, np.int64)
    order = np.argsort(-seen, kind="stable")
    order = order[seen[order] >= max(least, 1)]
    if len(order) < 2:
        what = f"{len(order)} words stand {least} times or more in this text"
        raise DataError(what, fix="a smaller least=, or more text")
    place = np.full(len(seen), -1, np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    spelled = list(ids)
    words = [spelled[number - 1] for number in order]
    return WordCorpus(words, seen[order], np.memmap(file, np.int32, "r"), place)
