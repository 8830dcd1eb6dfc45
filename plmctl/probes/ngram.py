"""A language model that counts: interpolated Kneser-Ney over the n-grams of words."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from plmctl.core.errors import DataError

_WORD = re.compile(r"\w+(?:['’]\w+)*|[^\w\s]")
BEGIN, END, UNKNOWN = 0, 1, 2  # before a sentence, after it, any rare word
PLAIN = np.array([0.0, 0.5, 1.0, 1.5])  # discounts of a text with too few counts to estimate them


@dataclass(frozen=True)
class CountedNgrams:
    """The n-grams of one length that a text has.

    Args:
        keys: [N] rising: number of the n-gram without its last word, times V, plus that word.
        probability: [N] of the last word after the others.
        total: [N] counts of the longer n-grams that begin with this one; 0: none does.
        backoff: [N] the share that goes to shorter ones after this one.
    """

    keys: np.ndarray
    probability: np.ndarray
    total: np.ndarray
    backoff: np.ndarray


class KneserNey:
    """`P(w | h) = (a(hw) - D(a(hw))) / a(h.) + b(h) P(w | h')`; h' is h without its first word, b
    what makes the sum 1. After an unseen h it is P(w | h').

    a is the count of the n-gram if it has n words or begins a sentence, else the number of
    different words before it. D(1), D(2) and D(3 or more) are estimated for each length
    from the numbers of n-grams with the counts 1 to 4. Single words are mixed with equal shares of
    the V words that may follow. (Chen and Goodman, 1998, TR-10-98, sec. 3 and 4.1; Heafield et al.,
    2013, P13-2121, sec. 3.)

    Args:
        sentences: The texts, one sentence each.
        order: The longest n-gram, n.
        least: A word that stands less often is unknown.
    """

    def __init__(self, sentences: Iterable[str], *, order: int = 5, least: int = 2) -> None:
        texts = [split_words(text) for text in sentences]
        counts = Counter(word for words in texts for word in words)
        if not counts:
            raise DataError("no words to count", fix="task.ngram=<a text>")
        known = sorted(word for word, times in counts.items() if times >= least)
        self.number = {word: UNKNOWN + 1 + index for index, word in enumerate(known)}
        self.size, self.order = UNKNOWN + 1 + len(known), order
        self.orders = self._count(*self._join(texts))

    def score(self, sentences: Sequence[str]) -> np.ndarray:
        """[n] the log-probability of each sentence and of its end, in nats."""
        words, place = self._join([split_words(text) for text in sentences])
        ids = words.copy()  # numbers of the n-grams that end at each word; -1: the text has none
        value = self.orders[0].probability[words]
        for length, (shorter, own) in enumerate(
            zip(self.orders, self.orders[1:], strict=False), start=2
        ):
            before = np.where(place + 1 >= length, np.append(-1, ids[:-1]), -1)
            seen = (before >= 0) & (shorter.total[before] > 0)
            keys = np.where(seen, before, 0) * self.size + words
            at = np.minimum(np.searchsorted(own.keys, keys), len(own.keys) - 1)
            found = seen & (own.keys[at] == keys)
            value = np.where(seen, shorter.backoff[before] * value, value)
            value = np.where(found, own.probability[at], value)
            ids = np.where(found, at, -1)
        logs = np.where(place > 0, np.log(np.where(place > 0, value, 1.0)), 0.0)
        return np.add.reduceat(logs, np.flatnonzero(place == 0))

    def find_unknown(self, sentences: Sequence[str]) -> float:
        """The share of the words of sentences that are unknown."""
        words = [word in self.number for text in sentences for word in split_words(text)]
        return 1 - sum(words) / max(1, len(words))

    def _join(self, texts: Iterable[Sequence[str]]) -> tuple[np.ndarray, np.ndarray]:
        """[N] the words of all sentences with their beginnings and ends; [N] their numbers."""
        number = self.number
        rows = [[BEGIN, *(number.get(word, UNKNOWN) for word in own), END] for own in texts]
        lengths = np.array([len(row) for row in rows], np.int64)
        words = np.fromiter((word for row in rows for word in row), np.int64, int(lengths.sum()))
        return words, np.arange(len(words)) - np.repeat(lengths.cumsum() - lengths, lengths)

    def _count(self, words: np.ndarray, place: np.ndarray) -> list[CountedNgrams]:
        """The n-grams of each length, from single words on."""
        ids, keys = words, [np.arange(self.size)]
        counts = [np.bincount(words, minlength=self.size)]
        first = [np.arange(self.size) == BEGIN]  # whether an n-gram begins a sentence
        prefix, suffix = [np.zeros(self.size, np.int64)], [np.zeros(self.size, np.int64)]
        for length in range(2, self.order + 1):
            at = np.flatnonzero(place + 1 >= length)
            own, where, number, times = np.unique(
                ids[at - 1] * self.size + words[at],
                return_index=True,
                return_inverse=True,
                return_counts=True,
            )
            keys.append(own)
            counts.append(times)
            first.append(place[at[where]] + 1 == length)
            prefix.append(own // self.size)
            suffix.append(ids[at[where]])
            ids = np.full(len(words), -1)
            ids[at] = number
        for level, starts in enumerate(first[:-1]):
            continued = np.bincount(suffix[level + 1], minlength=len(starts))
            counts[level] = np.where(starts & (level > 0), counts[level], continued)
        return self._smooth(keys, counts, prefix, suffix)

    def _smooth(
        self,
        keys: list[np.ndarray],
        counts: list[np.ndarray],
        prefix: list[np.ndarray],
        suffix: list[np.ndarray],
    ) -> list[CountedNgrams]:
        allowed = np.arange(self.size) != BEGIN
        equal = np.where(allowed, 1 / (self.size - 1), 0.0)
        shorter, made = equal, list[CountedNgrams]()
        for level, count in enumerate(counts):
            count = count * allowed if level == 0 else count
            size = 1 if level == 0 else len(keys[level - 1])
            take = _discount(count)[np.minimum(count, 3)]
            total = np.bincount(prefix[level], weights=count, minlength=size)
            spared = np.bincount(prefix[level], weights=take, minlength=size)
            backoff = spared / np.maximum(total, 1)
            if made:
                made[-1].total[:], made[-1].backoff[:] = total, backoff
            share = (count - take) / np.maximum(total, 1)[prefix[level]]
            below = shorter if level == 0 else shorter[suffix[level]]
            shorter = share + backoff[prefix[level]] * below
            made.append(
                CountedNgrams(keys[level], shorter, np.zeros(len(count)), np.ones(len(count)))
            )
        return made


def split_words(text: str) -> list[str]:
    """The words of a text; a punctuation mark is a word."""
    return _WORD.findall(text)


def _discount(counts: np.ndarray) -> np.ndarray:
    """[4] D(0) = 0, D(1), D(2) and D(3 or more), from the numbers of counts 1 to 4."""
    times = np.bincount(np.minimum(counts, 5), minlength=6)[1:5]
    if not times.all():
        return PLAIN
    share = times[0] / (times[0] + 2 * times[1])
    found = np.array([k - (k + 1) * share * times[k] / times[k - 1] for k in (1, 2, 3)])
    return np.append(0.0, found) if (found > 0).all() else PLAIN
