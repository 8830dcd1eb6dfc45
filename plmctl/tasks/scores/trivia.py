"""Where the answers of a question stand in a text, and whether a guess is one of them, as TriviaQA
compares answers (Joshi et al., 2017, arXiv:1705.03551, sec. 4.3 and its evaluation script).
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from plmctl.text.letters import compose, find_words

_ARTICLES = frozenset({"a", "an", "the"})
_ARTICLE = re.compile(rf"\b({'|'.join(sorted(_ARTICLES))})\b")
_SPACES = str.maketrans(dict.fromkeys(f"{string.punctuation}‘’´`", " "))


class PlacedWord(NamedTuple):
    """A word as it is compared, and its characters [start, end) in the text."""

    text: str
    start: int
    end: int


def split_words(text: str) -> list[PlacedWord]:
    """The words of a text without articles: runs of letters, marks and digits in lower case."""
    words = find_words(text, without="_")
    found = (PlacedWord(compose(m[0].lower()), m.start(), m.end()) for m in words)
    return [word for word in found if word.text not in _ARTICLES]


def normalise(text: str) -> str:
    """As the script: lower case, ASCII punctuation and single quotation marks as spaces, the words
    a, an, the blanked, white space collapsed. Other signs are letters like any other.
    """
    return " ".join(_ARTICLE.sub(" ", text.lower().translate(_SPACES)).split())


def find_all(answers: Iterable[str], text: str) -> list[tuple[int, int]]:
    """The characters [start, end) of every occurrence in `text` of one of `answers` after
    normalisation, in order, each once.

    "The Beatles" is found in "(Beatles)" as characters 1 to 8, and "U.S. Army" in "u s  army".
    Differs: signs that `normalise` keeps, as “ and €, are passed over, too.
    """
    wanted: dict[str, set[tuple[str, ...]]] = {}  # by their first word
    for answer in answers:
        words = tuple(word.text for word in split_words(answer))
        if words:
            wanted.setdefault(words[0], set()).add(words)
    there, spans = split_words(text), set()
    for index, word in enumerate(there):
        for words in wanted.get(word.text, ()):
            here = there[index : index + len(words)]
            if tuple(each.text for each in here) == words:
                spans.add((word.start, here[-1].end))
    return sorted(spans)


def exact(gold: str, guess: str) -> float:
    """1 if both are the same after `normalise`, otherwise 0."""
    return float(normalise(gold) == normalise(guess))


def f1(gold: str, guess: str) -> float:
    """F1 of the words, 0 where they share none."""
    golds, guesses = normalise(gold).split(), normalise(guess).split()
    same = sum((Counter(golds) & Counter(guesses)).values())
    if not same:
        return 0.0
    precision, recall = same / len(guesses), same / len(golds)  # rounded as in the script
    return (2 * precision * recall) / (precision + recall)
