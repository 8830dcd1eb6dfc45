"""Answers from a passage without training: the sliding window of Richardson et al. (2013, MCTest,
alg. 1 and 2), as Rajpurkar et al. (2016, SQuAD, sec. 5) take it for spans.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, groupby, pairwise

from plmctl.text.function_words import ENGLISH
from plmctl.text.letters import UNSPACED, unit_pattern
from plmctl.text.sentences import pieces

_INSIDE = frozenset("-'’.%$€£·")  # signs inside a candidate


@dataclass(frozen=True, slots=True)
class Unit:
    """A word, a character of a script without spaces, or a sign, and its characters in a text."""

    text: str
    start: int
    end: int
    is_word: bool


class SearchedSentence:
    """The words of a sentence, and those pairs of them that are neighbours."""

    def __init__(self, units: Sequence[Unit]) -> None:
        self.units = units
        self.words = [unit.text for unit in units if unit.is_word]
        self.known = {*self.words, *pairwise(self.words)}

    @cached_property
    def places(self) -> dict[str, list[int]]:
        """The numbers of each word."""
        found = defaultdict[str, list[int]](list)
        for number, word in enumerate(self.words):
            found[word].append(number)
        return found

    def find_candidates(self, asked: AbstractSet[str]) -> Iterator[Sequence[Unit]]:
        """The longest runs without function words, words of the question, and signs between."""

        def is_inside(unit: Unit) -> bool:
            if unit.is_word:
                return unit.text not in asked and unit.text not in ENGLISH
            return unit.text in _INSIDE

        for inside, group in groupby(self.units, is_inside):
            run = [*group]
            words = [number for number, unit in enumerate(run) if unit.is_word]
            if inside and words:
                yield run[words[0] : words[-1] + 1]

    def score(
        self, asked: AbstractSet[str], own: AbstractSet[str], gain: Mapping[str, float]
    ) -> float:
        """The score of a candidate, see `SearchedPassage.answer`.

        Args:
            asked: The words of the question.
            gain: IC(w) of the words.
        """
        near = [n for word in asked - ENGLISH for n in self.places.get(word, ())]
        here = [n for word in own for n in self.places[word]]
        last = len(self.words) - 1
        least = min((abs(i - j) for i in near for j in here), default=last)
        return self.slide(asked | own, gain) - least / max(1, last)

    def slide(self, window: AbstractSet[str], gain: Mapping[str, float]) -> float:
        """The largest sum of IC(w) over the words of `window` in as many neighbours."""
        gains = [0.0] * len(self.words)
        for word in window & self.places.keys():
            for number in self.places[word]:
                gains[number] = gain[word]
        sums = [0.0, *accumulate(gains)]
        # no gain is negative: windows that reach over the end are never better
        ends = sums[len(window) :] or sums[-1:]
        return max(end - start for end, start in zip(ends, sums, strict=False))


class SearchedPassage:
    """The sentences of a passage, and how often each word occurs."""

    def __init__(self, text: str) -> None:
        self.text, at, self.sentences = text, 0, list[SearchedSentence]()
        for piece in pieces(text):
            self.sentences.append(SearchedSentence(cut(piece, at)))
            at += len(piece)
        counts = Counter(word for own in self.sentences for word in own.words)
        self.gain = {word: math.log1p(1 / count) for word, count in counts.items()}

    @cached_property
    def whole(self) -> SearchedSentence:
        """All sentences as one."""
        return SearchedSentence([unit for own in self.sentences for unit in own.units])

    def rate(self, choice: str) -> float:
        """`max_j sum_{i < |S|} [w_{j+i} in S] IC(w_{j+i})` over the whole passage, S the words of a
        choice and its question (alg. 1; Lai et al., 2017, arXiv:1704.04683, RACE, sec. 5).
        """
        words = {unit.text for unit in cut(choice) if unit.is_word}
        return self.whole.slide(words, self.gain)

    def answer(self, question: str) -> tuple[str, float]:
        """(the answer, the share of the words and pairs of the question that its sentence has).

        The candidates c stand in the sentences with the most words and pairs of the question. With
        `S = question + c` and `IC(w) = log(1 + 1 / count(w))`, the score of a candidate is
        `max_j sum_{i < |S|} [w_{j+i} in S] IC(w_{j+i}) - d / (n - 1)` over the n words of its
        sentence. The least distance of a word of the question to c is d; function words have none.
        Differs: candidates are runs between function words, signs
        and words of the question, as in RAKE (Rose et al., 2010), not constituents of a parser.
        """
        words = [unit.text for unit in cut(question) if unit.is_word]
        asked, known = {*words}, {*words, *pairwise(words)}
        shared = [len(known & own.known) for own in self.sentences]
        most = max(shared, default=0)
        best, text = -math.inf, ""
        for own, count in zip(self.sentences, shared, strict=True):
            for run in own.find_candidates(asked) if count == most else ():
                score = own.score(asked, {unit.text for unit in run if unit.is_word}, self.gain)
                if score > best:
                    best, text = score, self.text[run[0].start : run[-1].end]
        return text, most / max(1, len(known))


def cut(text: str, first: int = 0) -> list[Unit]:
    """The words and signs of a text whose first character has the number `first`."""
    return [
        Unit(unit[0].lower(), first + unit.start(), first + unit.end(), unit[0][0].isalnum())
        for unit in unit_pattern(UNSPACED).finditer(text)
    ]
