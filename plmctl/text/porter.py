"""The stems of English words by Porter's rules (Porter, 1980, "An algorithm for suffix
stripping").
"""

from __future__ import annotations

import re
from functools import lru_cache

_VOWELS = "aeiou"
# step 2, 3 and 4 of the paper: ending -> its replacement
_SECOND = (
    ("ational", "ate"),
    ("tional", "tion"),
    ("enci", "ence"),
    ("anci", "ance"),
    ("izer", "ize"),
    ("abli", "able"),
    ("alli", "al"),
    ("entli", "ent"),
    ("eli", "e"),
    ("ousli", "ous"),
    ("ization", "ize"),
    ("ation", "ate"),
    ("ator", "ate"),
    ("alism", "al"),
    ("iveness", "ive"),
    ("fulness", "ful"),
    ("ousness", "ous"),
    ("aliti", "al"),
    ("iviti", "ive"),
    ("biliti", "ble"),
)
_THIRD = (
    ("icate", "ic"),
    ("ative", ""),
    ("alize", "al"),
    ("iciti", "ic"),
    ("ical", "ic"),
    ("ful", ""),
    ("ness", ""),
)
_FOURTH = (
    *("al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "ion"),
    *("ou", "ism", "ate", "iti", "ous", "ive", "ize"),
)


@lru_cache(maxsize=1 << 16)
def stem(word: str) -> str:
    """The stem of a word in lower case; words of one or two letters are their own."""
    if len(word) <= 2:
        return word
    word = _end_past(_end_plural(word))
    if word.endswith("y") and _has_vowel(word[:-1]):
        word = word[:-1] + "i"
    word = _replace(_replace(word, _SECOND), _THIRD)
    return _end_e(_drop(word))


def _shape(word: str) -> str:
    """c for each consonant, v for each vowel; y is a vowel behind a consonant."""
    shape = ""
    for letter in word:
        vowel = letter in _VOWELS or (letter == "y" and shape.endswith("c"))
        shape += "v" if vowel else "c"
    return shape


def _measure(stem: str) -> int:
    """m of the paper: how many runs of vowels have a consonant behind them."""
    return len(re.findall("v+c+", _shape(stem)))


def _has_vowel(stem: str) -> bool:
    return "v" in _shape(stem)


def _is_short(stem: str) -> bool:
    """*o of the paper: it ends with consonant, vowel, consonant, and not w, x or y."""
    return _shape(stem).endswith("cvc") and stem[-1] not in "wxy"


def _is_double(stem: str) -> bool:
    return len(stem) > 1 and stem[-1] == stem[-2] and _shape(stem)[-1] == "c"


def _end_plural(word: str) -> str:
    """Step 1a."""
    if word.endswith(("sses", "ies")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


def _end_past(word: str) -> str:
    """Step 1b."""
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    for ending in ("ed", "ing"):
        left = word.removesuffix(ending)
        if left == word:
            continue
        if not _has_vowel(left):
            return word
        if left.endswith(("at", "bl", "iz")):
            return left + "e"
        if _is_double(left) and left[-1] not in "lsz":
            return left[:-1]
        return left + "e" if _measure(left) == 1 and _is_short(left) else left
    return word


def _replace(word: str, endings: tuple[tuple[str, str], ...]) -> str:
    """Steps 2 and 3: the longest ending that fits decides."""
    fitting = [pair for pair in endings if word.endswith(pair[0])]
    if not fitting:
        return word
    ending, other = max(fitting, key=lambda pair: len(pair[0]))
    left = word.removesuffix(ending)
    return left + other if _measure(left) > 0 else word


def _drop(word: str) -> str:
    """Step 4."""
    ending = max((each for each in _FOURTH if word.endswith(each)), key=len, default="")
    left = word.removesuffix(ending)
    if not ending or _measure(left) < 2 or (ending == "ion" and left[-1] not in "st"):
        return word
    return left


def _end_e(word: str) -> str:
    """Step 5."""
    if word.endswith("e"):
        left = word[:-1]
        measure = _measure(left)
        if measure > 1 or (measure == 1 and not _is_short(left)):
            word = left
    return word[:-1] if word.endswith("ll") and _measure(word[:-1]) > 1 else word
