"""Letters and words of any script: the one module that defines them.

A word is a run of letters, marks and digits (Unicode's categories L, M and N), in which the
joiners U+200C and U+200D stand too; Python's `\\w` lacks marks and breaks हिन्दी.
Words are compared in one form (NFC).
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

from plmctl.text.sentences import CJK

LOOKED = 1 << 20  # characters of a text that are looked at where a sample is enough
JOINTS = "'’-"  # signs inside of words: don't and well-made are one word each
JOINERS = "\u200c\u200d"  # U+200C is spelling in Persian; both choose forms in scripts of India
# between words of these scripts nobody writes spaces: Han, kana, Thai, Lao, Burmese, Khmer
UNSPACED = (
    f"{CJK}々〆\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9f\u0e00-\u0e7f\u0e80-\u0eff\u1000-\u109f"
    "\u1780-\u17ff\ua9e0-\ua9ff\uaa60-\uaa7f"
)
_UNSPACED = re.compile(f"[{UNSPACED}]")
# letters and signs of Chinese and Japanese text, which has no space between them
_LETTERS = f"{CJK}々〆〇\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9f"
_SIGNS = "\u3001-\u3004\u3008-\u301f\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65"
_GAP = re.compile(
    f"(?<=[{_LETTERS}]) (?=[{_LETTERS}“”‘’…—·])|(?<=[“”‘’…—·]) (?=[{_LETTERS}])"
    f"|(?<=[{_SIGNS}]) | (?=[{_SIGNS}])"
)
# a character with all that may compose with it: marks, and vowels and ends of Korean syllables
_CLUSTERS = re.compile(r".(?:(?!\w)[^\x00-\u02ff\s]|[\u1160-\u11ff])*", re.DOTALL)
_PLANES = ((0x300, 0x20000), (0xE0100, 0xE01F0))  # where marks are


@cache
def mark_class() -> str:
    """All marks, as ranges for a class of a regular expression."""
    ranges: list[list[int]] = []
    for first, last in _PLANES:
        for code in range(first, last):
            if unicodedata.category(chr(code))[0] == "M":
                if ranges and ranges[-1][1] == code - 1:
                    ranges[-1][1] = code
                else:
                    ranges.append([code, code])
    return "".join(f"{chr(first)}-{chr(last)}" for first, last in ranges)


@cache
def word_pattern(joints: str = "", without: str = "") -> re.Pattern[str]:
    """The pattern of words.

    Args:
        joints: signs that join two words to one where they stand between them, as `'-`.
        without: The letters, digits or `_` to leave out, as `_` or `\\d_`.
    """
    return _compile(mark_class() + JOINERS, joints, without)


@cache
def _compile(marks: str, joints: str, without: str) -> re.Pattern[str]:
    plain = rf"[^\W{without}]" if without else r"\w"
    # a mark or a joiner continues a word, and begins none; a joiner does not end it
    word = rf"{plain}+(?:[{marks}]+{plain}*)*(?<![{JOINERS}])" if marks else f"{plain}+"
    return re.compile(f"{word}(?:[{joints}]{word})*" if joints else word)


def find_words(text: str, *, joints: str = "", without: str = "") -> Iterator[re.Match[str]]:
    """The words of a text, from left to right; as `word_pattern`, and faster."""
    pattern = _compile("", joints, without) if text.isascii() else word_pattern(joints, without)
    return pattern.finditer(text)


def close_gaps(text: str) -> str:
    """Take the spaces between two Chinese or Japanese letters out of a text, and those before and
    behind a full-width sign.
    """
    return text if text.isascii() else _GAP.sub("", text)


@cache
def unit_pattern(alone: str = "") -> re.Pattern[str]:
    """The pattern of words, and of single signs that are neither words nor spaces.

    Args:
        alone: letters, as a class of a regular expression, each of which is a unit.
    """
    letters = f"[{alone}]|" if alone else ""
    return re.compile(rf"{letters}{word_pattern(without=alone).pattern}|[^\w\s]")


def split_words(text: str) -> list[str]:
    """The words of a text without `_`, in one form; of scripts without spaces each character with
    its marks.
    """
    text = compose(text)
    words = [word[0] for word in find_words(text, without="_")]
    if text.isascii() or not _UNSPACED.search(text):
        return words
    return [part for word in words for part in separate(word).split()]


def separate(text: str) -> str:
    """`text` with a space on both sides of each character of a script without spaces."""
    if text.isascii() or not _UNSPACED.search(text):
        return text
    return _unspaced_letters().sub(r" \g<0> ", text)


@cache
def _unspaced_letters() -> re.Pattern[str]:
    return re.compile(rf"[{UNSPACED}][{mark_class()}{JOINERS}]*")


def split_spaced(text: str) -> list[str]:
    """The words of a text by white space, in one form; of scripts without spaces each character
    with its marks.
    """
    return separate(compose(text)).split()


def has_unspaced(text: str) -> bool:
    """Whether a text has letters of a script without spaces."""
    return not text.isascii() and _UNSPACED.search(text) is not None


def compose(text: str) -> str:
    """`text` in the one form in which words are compared: a letter and its mark are one
    character where there is one (NFC).
    """
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def normalize_spaces(text: str) -> str:
    """`compose(text)` with one space for each stretch of white space, and none at its ends."""
    return " ".join(compose(text).split())


def compose_with_places(text: str) -> tuple[str, list[int]]:
    """`compose(text)`, and for each of its characters and for its end the position in `text`."""
    parts, places, at = [], list[int](), 0
    for part in _CLUSTERS.findall(text):
        parts.append(compose(part))
        places += [at] * len(parts[-1])
        at += len(part)
    return "".join(parts), [*places, at]


def count_unspaced(text: str, *, but: str = "") -> int:
    """The letters of scripts without spaces, without those of the class `but`."""
    found = [] if text.isascii() else _UNSPACED.findall(text)
    return sum(not but or not re.match(f"[{but}]", letter) for letter in found)


def is_mark(character: str) -> bool:
    """Whether a character belongs to the letter before it."""
    return character > "\u02ff" and (
        character in JOINERS or unicodedata.category(character)[0] == "M"
    )


def is_letter(character: str) -> bool:
    """Whether a character is part of a word: a letter, a digit or a mark."""
    return character.isalnum() or is_mark(character)


def is_word(text: str) -> bool:
    """Whether a text is nothing but letters with their marks."""
    if text.isascii():
        return text.isalpha()
    return text[:1].isalpha() and all(char.isalpha() or is_mark(char) for char in text)


def split_letters(word: str) -> list[str]:
    """The letters of a word, each with its marks."""
    if word.isascii():
        return list(word)
    letters: list[str] = []
    for char in word:
        if letters and is_mark(char):
            letters[-1] += char
        else:
            letters.append(char)
    return letters


@dataclass(frozen=True)
class ChangedLetters:
    """The letters of a text that a tokenizer changes before it reads them, their case aside."""

    letters: int
    changed: int
    examples: tuple[tuple[str, str], ...]  # the most frequent, before and after

    def settings(self) -> dict[str, Any]:
        """The fields as JSON, for the manifest."""
        return {**asdict(self), "examples": [list(pair) for pair in self.examples]}

    def __str__(self) -> str:
        shown = ", ".join(f"{one} to {_spell_parts(one, other)}" for one, other in self.examples)
        lost = f"{self.share:.1%} of the letters lose their marks or fall apart in the tokenizer"
        return f"{lost} ({shown})" if shown else lost

    @property
    def share(self) -> float:
        return self.changed / max(1, self.letters)


def _spell_parts(before: str, after: str) -> str:
    """`after`; with spaces between its characters where it looks as `before` does, in parts."""
    same = unicodedata.normalize("NFC", after) == unicodedata.normalize("NFC", before)
    return " ".join(after) if same else after


def measure_changed(normalize: Callable[[str], str], texts: Iterable[str]) -> ChangedLetters:
    """The letters of the first `LOOKED` characters of texts which `normalize` does not leave as
    they are: their marks are gone, or they are others.

    Another form of the same letter counts as the same (é in one character or two, ① as 1), but
    syllables that fall apart into letters do not.
    """
    letters, left = Counter[str](), LOOKED
    for text in texts:
        text = text[:left]
        left -= len(text)
        letters.update(map(str.casefold, _letter_pattern().findall(text)))
        if left <= 0:
            break
    changed = {
        letter: after
        for letter in letters
        if not letter.isascii()
        and (after := normalize(letter).strip()).casefold() not in _list_forms(letter)
    }
    often = sorted(changed, key=lambda letter: (-letters[letter], letter))
    return ChangedLetters(
        letters.total(),
        sum(letters[letter] for letter in changed),
        tuple((letter, changed[letter]) for letter in often[:3]),
    )


@cache
def _letter_pattern() -> re.Pattern[str]:
    return re.compile(rf"[^\W\d_][{mark_class()}]*")


def _list_forms(letter: str) -> set[str]:
    composed = {unicodedata.normalize(form, letter).casefold() for form in ("NFC", "NFKC")}
    return {letter, *composed, *(unicodedata.normalize("NFC", form) for form in composed)}
