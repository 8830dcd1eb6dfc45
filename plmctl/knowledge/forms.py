"""Where a form of a word stands in a text."""

from __future__ import annotations

import re
from itertools import takewhile

from plmctl.core.errors import AbsentData
from plmctl.knowledge.wordnet import PARTS, WordNet, inflect
from plmctl.text.letters import JOINTS, compose, find_words

_DOUBLED = re.compile(r"([b-df-hj-np-tv-z])\1$")  # "stopp" of "stopped"


def find_form(text: str, lemma: str, path: str | None = None) -> tuple[int, int] | None:
    """The characters [start, end) of the first form of `lemma` in a text; None without one.

    A form is the lemma itself; then a word that WordNet or its rules lead back to it; then the word
    that shares most letters with its beginning, at least half of them. If a lemma has several
    words, the first decides where the form begins, and the form goes on as far as the others
    follow.

    Args:
        path: The path of WordNet's dictionary, which knows irregular forms; without one, rules
            alone decide.
    """
    wanted = compose(lemma.lower()).replace("_", " ").split()
    words = list(find_words(text, joints=JOINTS))
    if not wanted or not words:
        return None
    spelled = [compose(word[0].lower()) for word in words]
    ranks = [_rank(word, wanted[0], path) for word in spelled]
    best = max(ranks)
    if best == 0:
        return None
    first = last = ranks.index(best)
    for each in wanted[1:]:
        behind = range(last + 1, min(last + 4, len(words)))
        last = next((n for n in behind if _rank(spelled[n], each, path) >= 2), last)
    return words[first].start(), words[last].end()


def _rank(word: str, lemma: str, path: str | None) -> float:
    """4: equal; 3: a form by WordNet; 2: by rules; below 1: the share of its letters; 0: none."""
    if word == lemma:
        return 4.0
    if _is_form(word, lemma, path):
        return 3.0
    stems = {stem for part in PARTS for stem in inflect(word, part)}
    if lemma in stems | {_DOUBLED.sub(r"\1", stem) for stem in stems}:
        return 2.0
    equal = takewhile(lambda letters: letters[0] == letters[1], zip(word, lemma, strict=False))
    shared = len(list(equal)) / max(len(lemma), len(word))
    return shared if shared >= 0.5 else 0.0


def _is_form(word: str, lemma: str, path: str | None) -> bool:
    try:
        wordnet = WordNet.open(path)
    except AbsentData:
        return False
    return any(lemma in wordnet.lemmatize(word, part) for part in PARTS)
