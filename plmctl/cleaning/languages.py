"""The language of a text by its letters and its function words: fast, and without a model.

It tells 27 languages apart in a text of a few lines. Among close relatives, and in lists of names,
it is less sure than a trained classifier.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from typing import NamedTuple

from plmctl.cleaning.function_words import FUNCTION_WORDS
from plmctl.text.sentences import CJK

UNKNOWN = "und"  # ISO 639-2: undetermined
_LOOKED = 1 << 14  # characters of a text that are looked at
_LEAST = 0.08  # share of the words that are function words; in less, no language is certain
_WORD = re.compile(r"[^\W\d_]+")

# letters that only one language of a script uses much: (script, letters, language)
_OWN_LETTERS = (("Cyrillic", "іїєґ", "uk"), ("Cyrillic", "ыэё", "ru"), ("Arabic", "پچژگ", "fa"))
_SCRIPTS = {  # script: (its letters, its usual language)
    "Latin": ("A-Za-z\u00c0-\u024f\u1e00-\u1eff", ""),
    "Han": (CJK, "zh"),
    "kana": ("\u3041-\u30ff\u31f0-\u31ff\uff66-\uff9f", "ja"),
    "Hangul": ("\u1100-\u11ff\u3130-\u318f\uac00-\ud7af", "ko"),
    "Cyrillic": ("\u0400-\u052f", "ru"),
    "Greek": ("\u0370-\u03ff\u1f00-\u1fff", "el"),
    "Arabic": ("\u0600-\u06ff\u0750-\u077f\ufb50-\ufdff\ufe70-\ufeff", "ar"),
    "Hebrew": ("\u0590-\u05ff", "he"),
    "Thai": ("\u0e00-\u0e7f", "th"),
    "Devanagari": ("\u0900-\u097f", "hi"),
    "Bengali": ("\u0980-\u09ff", "bn"),
    "Tamil": ("\u0b80-\u0bff", "ta"),
}
_PATTERNS = {name: re.compile(f"[{letters}]") for name, (letters, _) in _SCRIPTS.items()}
LANGUAGES = tuple(
    sorted(
        {*FUNCTION_WORDS, *(of for _, of in _SCRIPTS.values() if of)}
        | {of for _, _, of in _OWN_LETTERS}
    )
)


def _list_owners() -> dict[str, list[str]]:
    owners: dict[str, list[str]] = defaultdict(list)
    for language, words in FUNCTION_WORDS.items():
        for word in dict.fromkeys(words.split()):
            owners[word].append(language)
    return dict(owners)


_OWNERS = _list_owners()


class Guessed(NamedTuple):
    """A language as ISO 639-1, and how sure it is, from 0 to 1."""

    code: str
    share: float


def guess_language(text: str) -> Guessed:
    """The language of a text: the one of its script, or in Latin letters the one with most of the
    function words. A word of several languages counts as a part for each.

    Returns:
        Its code, and the share of the letters in its script. In Latin letters it is times the share
        of the function words that are words of the language.
    """
    sample = text[:_LOOKED]
    counts = _count_scripts(sample)
    total = sum(counts.values())
    if not total:
        return Guessed(UNKNOWN, 0.0)
    script = max(counts, key=lambda name: counts[name])
    if script in ("Han", "kana"):
        share = (counts["Han"] + counts["kana"]) / total
        return Guessed("ja" if 20 * counts["kana"] > counts["Han"] else "zh", share)
    share = counts[script] / total
    if script != "Latin":
        return Guessed(_choose_by_letters(sample, script), share)
    code, votes = _vote(sample.lower())
    return Guessed(code, share * votes)


def _count_scripts(sample: str) -> Counter[str]:
    if sample.isascii():
        return Counter(Latin=sum(map(str.isalpha, sample)))
    return Counter({name: len(pattern.findall(sample)) for name, pattern in _PATTERNS.items()})


def _choose_by_letters(sample: str, script: str) -> str:
    of = Counter({_SCRIPTS[script][1]: 0})
    for own, letters, language in _OWN_LETTERS:
        if own == script:
            of[language] = sum(map(sample.lower().count, letters))
    return max(of, key=lambda language: of[language])


def _vote(sample: str) -> tuple[str, float]:
    """The language, and the share of the function words of a text that are words of it."""
    votes: dict[str, float] = defaultdict(float)
    words = _WORD.findall(sample)
    found = Counter(word for word in words if word in _OWNERS)
    for word, count in found.items():
        for language in _OWNERS[word]:
            votes[language] += count / len(_OWNERS[word])
    if found.total() < _LEAST * len(words) or not votes:
        return UNKNOWN, 0.0
    best = max(votes, key=lambda language: (votes[language], language))
    own = sum(count for word, count in found.items() if best in _OWNERS[word])
    return best, own / found.total()
