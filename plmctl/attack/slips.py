"""WordCandidates that are the word with a slip: of letters (Gao et al., 2018), or of a finger."""

from __future__ import annotations

import string
import unicodedata
from abc import abstractmethod
from collections.abc import Sequence

import numpy as np

from plmctl.attack.base import Place, WordCandidates
from plmctl.core.parts import part_of
from plmctl.text.letters import split_letters
from plmctl.text.sentences import CHINESE

ROWS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")  # rows of a keyboard, each half a key to the right
# first and last letters of usual alphabets, by the first word of their Unicode names
_ALPHABETS = {
    **{"GREEK": "αω", "CYRILLIC": "ая", "ARMENIAN": "աֆ", "GEORGIAN": "აჰ", "HEBREW": "את"},
    **{"ARABIC": "اي", "DEVANAGARI": "कह", "BENGALI": "কহ", "GURMUKHI": "ਕਹ", "GUJARATI": "કહ"},
    **{"TAMIL": "கஹ", "TELUGU": "కహ", "KANNADA": "ಕಹ", "MALAYALAM": "കഹ", "SINHALA": "කෆ"},
    **{"THAI": "กฮ", "LAO": "ກຮ", "KHMER": "កហ", "MYANMAR": "ကအ", "ETHIOPIC": "ሀፐ"},
}


class Slips(WordCandidates):
    """Slips are drawn by `seed` and the word alone, so that a word has the same ones everywhere."""

    def __init__(self, *, seed: int = 0) -> None:
        self.seed = seed
        self.known: dict[str, list[str]] = {}

    def propose(self, places: Sequence[Place]) -> list[list[str]]:
        words = [text.word(number) for text, number in places]
        for word in words:
            if word not in self.known:
                draws = np.random.default_rng([self.seed, *map(ord, word)])
                self.known[word] = [
                    other for other in dict.fromkeys(self.slip(word, draws)) if other != word
                ]
        return [self.known[word] for word in words]

    @abstractmethod
    def slip(self, word: str, draws: np.random.Generator) -> list[str]:
        """The word with one slip, in several ways."""


@part_of("attack_candidates")
class LetterSlips(Slips):
    """Two neighbouring letters swapped, one replaced, one left out, one put in: one of each, at
    random positions (DeepWordBug: Gao et al., 2018, arXiv:1801.04354, sec. III-C).

    Words of one letter stay. A new letter is of the script of its neighbour. In a Chinese word two
    characters are swapped, or one is left out.
    """

    def slip(self, word: str, draws: np.random.Generator) -> list[str]:
        letters = split_letters(word)  # marks go with their letters
        if len(letters) < 2:
            return []
        swap, place, gone = (int(draws.integers(len(letters) - off)) for off in (1, 0, 0))
        between = int(draws.integers(len(letters) + 1))
        near = letters[min(between, len(letters) - 1)]
        other, more = (_draw_letter(each, letters, draws) for each in (letters[place], near))
        swapped = [*letters[:swap], letters[swap + 1], letters[swap], *letters[swap + 2 :]]
        shorter = [*letters[:gone], *letters[gone + 1 :]]
        replaced = [*letters[:place], other, *letters[place + 1 :]]
        longer = [*letters[:between], more, *letters[between:]]
        found = [swapped, shorter] if CHINESE.search(word) else [swapped, replaced, shorter, longer]
        return ["".join(each) for each in found]


@part_of("attack_candidates")
class KeyboardSlips(Slips):
    """A letter next to the right one on a keyboard (QWERTY), at `count` random positions (Li et
    al., 2019, arXiv:1812.05271, sec. III-B, "substitute").
    """

    def __init__(self, *, count: int, seed: int = 0) -> None:
        super().__init__(seed=seed)
        self.count = count

    def slip(self, word: str, draws: np.random.Generator) -> list[str]:
        able = [n for n, letter in enumerate(word) if letter.lower() in KEYS]
        slips = []
        for n in sorted(draws.permutation(len(able))[: self.count].tolist()):
            place = able[n]
            near = KEYS[word[place].lower()]
            letter = near[int(draws.integers(len(near)))]
            letter = letter.upper() if word[place].isupper() else letter
            slips.append(word[:place] + letter + word[place + 1 :])
        return slips


def _draw_letter(near: str, letters: Sequence[str], draws: np.random.Generator) -> str:
    """A letter of the script of `near`; of a script without a small alphabet one of `letters`."""
    script = unicodedata.name(near[0], "").partition(" ")[0]
    if near[0].isascii() or script in ("LATIN", "FULLWIDTH", "DIGIT", ""):
        choices: Sequence[str] = string.ascii_lowercase
    elif script in _ALPHABETS:
        first, last = map(ord, _ALPHABETS[script])
        choices = [letter for letter in map(chr, range(first, last + 1)) if letter.isalpha()]
    else:
        choices = letters
    return choices[int(draws.integers(len(choices)))]


def _find_neighbours() -> dict[str, str]:
    at = {key: (row, n + row / 2) for row, keys in enumerate(ROWS) for n, key in enumerate(keys)}
    return {
        key: "".join(
            other
            for other, (its_row, its_n) in at.items()
            if other != key and abs(its_row - row) <= 1 and abs(its_n - n) <= 1
        )
        for key, (row, n) in at.items()
    }


KEYS = _find_neighbours()
