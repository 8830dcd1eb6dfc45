"""Texts as people also write them: with typos, in other case, without punctuation (Naik et al.,
2018; Ribeiro et al., 2020); and with words or sentences in another order.
"""

from __future__ import annotations

import re
import unicodedata
import zlib
from abc import ABC, abstractmethod
from typing import Literal

import numpy as np

from plmctl.attack.slips import KEYS
from plmctl.attack.word_text import WordText
from plmctl.core.errors import ConfigError
from plmctl.core.parts import base_of, part_of
from plmctl.text.letters import is_letter, split_letters

_SENTENCES = re.compile(r"((?<=[.!?])\s+(?=\S)|(?<=[。！？])\s*(?=\S))")


@base_of("perturb")
class Perturbation(ABC):
    """Changes a text so that its label stays.

    The draws depend only on `seed` and the text, so they are the same in any order.
    """

    def __init__(self, *, seed: int = 0) -> None:
        self.seed = seed

    def __call__(self, text: str) -> str:
        """The changed text."""
        return self.change(text, np.random.default_rng([self.seed, zlib.crc32(text.encode())]))

    @abstractmethod
    def change(self, text: str, draws: np.random.Generator) -> str:
        """The changed text, by these draws."""


@part_of("perturb")
class Typos(Perturbation):
    """A share `rate` of the words, one at least, has a slip: two letters swapped, a letter left
    out or doubled, or a neighbouring key. (Pruthi et al., 2019, arXiv:1905.11268, sec.
    2.)

    A Chinese character is swapped with the next word, or left out.
    """

    def __init__(self, *, rate: float, seed: int = 0) -> None:
        super().__init__(seed=seed)
        check_rate(rate)
        self.rate = rate

    def change(self, text: str, draws: np.random.Generator) -> str:
        words = WordText.of(text)
        able = [n for n in range(len(words)) if not words.word(n).isdigit()]
        if not able:
            return text
        count = max(1, round(self.rate * len(able)))
        now, gone = list(words.pieces), draws.permutation(len(able))[:count]
        for n in sorted(able[place] for place in gone.tolist()):
            place = words.places[n]
            if len(split_letters(now[place])) > 1 or now[place].isascii():
                now[place] = slip(now[place], draws)
            elif n + 1 < len(words) and words.pieces[place + 1] == "" and draws.random() < 0.5:
                after = words.places[n + 1]
                now[place], now[after] = now[after], now[place]
            else:
                now[place] = ""
        return "".join(now)


def slip(word: str, draws: np.random.Generator) -> str:
    """A word with one slip; for a word of one letter, the neighbouring key. Marks go with their
    letters.
    """
    letters = split_letters(word)
    n, kind = int(draws.integers(len(letters))), int(draws.integers(4))
    near = KEYS.get(letters[n].lower(), "")
    if len(letters) > 1 and kind == 0:
        n = min(n, len(letters) - 2)
        letters[n : n + 2] = letters[n + 1], letters[n]
    elif len(letters) > 1 and kind == 1:
        del letters[n]
    elif kind == 2 or not near:
        letters.insert(n, letters[n])
    else:
        other = near[int(draws.integers(len(near)))]
        letters[n] = other.upper() if letters[n].isupper() else other
    return "".join(letters)


@part_of("perturb")
class OtherCase(Perturbation):
    """All letters in `upper` or `lower` case, or each word with a capital (`title`)."""

    def __init__(self, *, to: Literal["upper", "lower", "title"], seed: int = 0) -> None:
        super().__init__(seed=seed)
        self.to = to

    def change(self, text: str, draws: np.random.Generator) -> str:
        return {"upper": str.upper, "lower": str.lower, "title": str.title}[self.to](text)


@part_of("perturb")
class NoPunctuation(Perturbation):
    """Without marks of punctuation, those of Chinese among them; between two letters a mark becomes
    a space, but for an apostrophe, which goes.
    """

    def change(self, text: str, draws: np.random.Generator) -> str:
        kept = []
        for n, letter in enumerate(text):
            between = is_letter(text[n - 1 : n] or " ") and is_letter(text[n + 1 : n + 2] or " ")
            if not unicodedata.category(letter).startswith("P"):
                kept.append(letter)
            elif between and letter not in "'’":
                kept.append(" ")
        return "".join(kept)


@part_of("perturb")
class MissingWords(Perturbation):
    """A share `rate` of the words is missing, at most all but one."""

    def __init__(self, *, rate: float, seed: int = 0) -> None:
        super().__init__(seed=seed)
        check_rate(rate)
        self.rate = rate

    def change(self, text: str, draws: np.random.Generator) -> str:
        words = WordText.of(text)
        count = min(round(self.rate * len(words)), len(words) - 1)
        now = list(words.pieces)
        for n in draws.permutation(len(words))[: max(count, 0)].tolist():
            place = words.places[n]
            now[place] = ""
            if now[place - 1].endswith(" "):
                now[place - 1] = now[place - 1][:-1]
        return "".join(now)


@part_of("perturb")
class OtherOrder(Perturbation):
    """The words, or the sentences, in random order, and all that stands between them where it was
    (Pham et al., 2021, arXiv:2012.15180, sec. 3.1; Sinha et al., 2021, arXiv:2104.06644).

    A score that stays the same needs no order. A sentence ends at the marks `.!?` before a space,
    or at those of Chinese.
    """

    def __init__(self, *, of: Literal["words", "sentences"], seed: int = 0) -> None:
        super().__init__(seed=seed)
        self.of = of

    def change(self, text: str, draws: np.random.Generator) -> str:
        if self.of == "words":
            words = WordText.of(text)
            now, order = list(words.pieces), draws.permutation(len(words)).tolist()
            for n, other in enumerate(order):
                now[words.places[n]] = words.word(other)
            return "".join(now)
        pieces = _SENTENCES.split(text)  # sentences, and the spaces behind each
        sentences = pieces[::2]
        pieces[::2] = [sentences[n] for n in draws.permutation(len(sentences)).tolist()]
        return "".join(pieces)


def check_rate(rate: float) -> None:
    """ConfigError for a share of words outside of (0, 1]."""
    if not 0 < rate <= 1:
        raise ConfigError("rate", rate, "more than 0, at most 1", fix="rate=0.1")
