"""Slips of letters and of fingers."""

import unicodedata

import pytest

from plmctl.attack.slips import KEYS, KeyboardSlips, LetterSlips
from plmctl.attack.word_text import WordText


def propose(part: LetterSlips | KeyboardSlips, text: str) -> list[list[str]]:
    words = WordText.of(text)
    return part.propose([(words, n) for n in range(len(words))])


def kinds(word: str) -> dict[str, set[str]]:
    """All slips of a word, by definition."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    size = range(len(word))
    return {
        "swap": {word[:n] + word[n + 1] + word[n] + word[n + 2 :] for n in size[:-1]},
        "replace": {word[:n] + c + word[n + 1 :] for n in size for c in letters},
        "leave out": {word[:n] + word[n + 1 :] for n in size},
        "put in": {word[:n] + c + word[n:] for n in range(len(word) + 1) for c in letters},
    }


def test_there_is_one_slip_of_each_kind() -> None:
    for word in ("film", "great", "Excellent"):
        (found,) = propose(LetterSlips(seed=1), word)
        left = [other for other in found if other not in kinds(word)["swap"]]
        assert 2 <= len(left) <= 4
        assert all(any(other in own for own in kinds(word).values()) for other in found)
        assert word not in found
    assert propose(LetterSlips(), "a") == [[]]


@pytest.mark.parametrize(
    "text",
    [
        "اللغة العربية جميلة",
        "хороший фильм",
        "μεγάλη ταινία",
        "סרט טוב מאוד",
        "अच्छी फिल्म",
        "재미있는 영화",
    ],
)
def test_new_letters_are_of_the_script_of_the_word(text: str) -> None:
    def scripts(word: str) -> set[str]:
        return {unicodedata.name(letter).partition(" ")[0] for letter in word}

    for seed in range(5):
        for word, found in zip(text.split(), propose(LetterSlips(seed=seed), text), strict=True):
            assert found
            assert all(scripts(other) <= scripts(word) for other in found)


def pairs(text: str) -> list[tuple[int, int]]:
    """Two characters make a word, as a segmenter finds them."""
    return [(n, min(n + 2, len(text))) for n in range(0, len(text), 2)]


def test_a_chinese_word_is_cut_by_a_segmenter_and_has_slips_of_its_own_characters() -> None:
    text = "非常好看，5 stars 好"
    assert WordText.of(text, pairs).pieces[1::2] == ("非常", "好看", "5", "stars", "好")
    alone = WordText.of(text)
    assert alone.pieces[1::2] == ("非", "常", "好", "看", "5", "stars", "好")
    for words in (alone, WordText.of(text, pairs)):
        assert words.text == text
        for n in range(len(words)):
            assert text[words.start(n) :].startswith(words.word(n))
    words = WordText.of(text, pairs)
    for seed in range(4):
        first, second, *_, last = LetterSlips(seed=seed).propose([(words, n) for n in range(5)])
        assert first[0] == "常非"
        assert first[1] in ("非", "常")
        assert second[0] == "看好"
        assert second[1] in ("好", "看")
        assert last == []


def test_a_word_has_the_same_slips_everywhere_and_others_by_the_seed() -> None:
    first = propose(LetterSlips(seed=1), "great film")
    assert propose(LetterSlips(seed=1), "a film so great")[::-1][:1] == first[:1]
    assert propose(LetterSlips(seed=2), "great film") != first


def test_a_finger_slips_to_a_key_beside() -> None:
    assert set(KEYS["s"]) == set("awedzx")
    assert set(KEYS["q"]) == set("wa")
    assert set(KEYS["m"]) == set("njk")
    for word, found in zip(("Film", "很"), propose(KeyboardSlips(count=3), "Film 很"), strict=True):
        for other in found:
            (place,) = [n for n in range(len(word)) if word[n] != other[n]]
            assert other[place].lower() in KEYS[word[place].lower()]
            assert other[place].isupper() is word[place].isupper()
        assert len(found) == (3 if word == "Film" else 0)
