"""The meaning of a word in a sentence, by the glosses of its senses (Ke et al., 2020, SentiLARE),
and so its polarity in the sentence. Senses are those of SentiWordNet:

    a <tab> 00064787 <tab> 0.625 <tab> 0 <tab> good#3 honest#2 <tab> deserving of esteem
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from plmctl.core.errors import AbsentData, DataError
from plmctl.knowledge.sentiment import LETTERS, PARTS, WordPolarity, lexicon_lines, sign
from plmctl.knowledge.wordnet import inflect

_SHOWN = "SentiWordNet's file: part, offset, two scores, words#rank and a gloss, with tabs between"
# names of parts of speech in morphy
_RULES = {"noun": "noun", "verb": "verb", "adjective": "adj", "adverb": "adv"}


class GlossedSense(NamedTuple):
    """A sense of a word: index into `PARTS`, positive less negative score, rank from 1, gloss."""

    part: int
    score: float
    rank: int
    gloss: str


class GlossSimilarity(Protocol):
    """How near glosses are to a sentence."""

    def read(self, texts: Iterable[str]) -> None:
        """Prepare for sentences and glosses that are compared next."""

    def compare(self, sentence: str, glosses: Sequence[str]) -> list[float]:
        """The cosine of each gloss with the sentence."""


def read_senses(file: Path) -> dict[str, list[GlossedSense]]:
    """{word in lower case: its senses}, of single words.

    Raises:
        AbsentData: there is no such file.
        DataError: a line has another form, or no line has a gloss.
    """
    if not file.is_file():
        raise AbsentData("there is no such lexicon of senses", file=file, fix=_SHOWN)
    senses: dict[str, list[GlossedSense]] = defaultdict(list)
    for number, cells in lexicon_lines(file):
        try:
            letter, _, positive, negative, terms, gloss = cells[:6]
            part, score = LETTERS[letter], float(positive) - float(negative)
            for term in terms.split():
                word, _, rank = term.rpartition("#")
                sense = GlossedSense(part, score, int(rank), gloss)
                if sense.rank < 1:
                    raise ValueError(rank)
                senses[word.lower()].append(sense)
        except (ValueError, KeyError):
            what = "no synset with a gloss"
            raise DataError(what, file=file, line=number, fix=_SHOWN) from None
    if not senses:
        raise DataError("no words in it", file=file, fix=_SHOWN)
    return dict(senses)


def find_senses(
    word: str, senses: Mapping[str, Sequence[GlossedSense]], part: int = 0
) -> list[GlossedSense]:
    """The senses of a word in a text, by the rules of morphy. For each part of speech they are
    those of the first form that has any.

    Args:
        word: in any case.
        part: index into `PARTS`; 0: any.
    """
    found: list[GlossedSense] = []
    for number in (part,) if part else range(1, len(PARTS)):
        for form in (word.lower(), *inflect(word.lower(), _RULES[PARTS[number]])):
            own = [sense for sense in senses.get(form, ()) if sense.part == number]
            if own:
                found += own
                break
    return found


def weigh_senses(senses: Sequence[GlossedSense], cosines: Sequence[float]) -> list[float]:
    """`softmax_k((cos_k + 1) / (2 rank_k))`: how likely a word has each of its senses (Ke et al.,
    2020, arXiv:1911.02493, sec. 3.2; scaled as in thu-coai/SentiLARE).
    """
    scores = [(cosine + 1) / 2 / sense.rank for sense, cosine in zip(senses, cosines, strict=True)]
    powers = [math.exp(score - max(scores)) for score in scores]
    return [power / sum(powers) for power in powers]


def choose_polarity(senses: Sequence[GlossedSense], cosines: Sequence[float]) -> WordPolarity:
    """The sign of `sum_k a_k score_k`, a as of `weigh_senses`, and the part of speech with most of
    a.
    """
    weights = weigh_senses(senses, cosines)
    parts = [0.0] * len(PARTS)
    for sense, weight in zip(senses, weights, strict=True):
        parts[sense.part] += weight
    polarity = sign((sense.score, weight) for sense, weight in zip(senses, weights, strict=True))
    return WordPolarity(polarity, max(range(len(PARTS)), key=parts.__getitem__))
