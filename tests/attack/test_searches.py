"""Searches side by side and cached, against loops over one text at a time."""

from __future__ import annotations

import random
import zlib
from collections.abc import Sequence

import numpy as np
import pytest

from plmctl.attack.base import AttackSearch, Pair, Place, WordCandidates
from plmctl.attack.beam import AttackBeam
from plmctl.attack.constraints import ChangedOnce, KeepStopWords, ShareChanged
from plmctl.attack.importance import ByImportance, measure_importance
from plmctl.attack.together import AskedOnce, attack_together
from plmctl.attack.word_text import WordText
from plmctl.core.errors import ConfigError
from tests.attack.plain import attack_by_beam, attack_by_importance

VOCAB = [f"w{n}" for n in range(40)]
LABELS = 3


def weigh(word: str) -> np.ndarray:
    draws = np.random.default_rng(zlib.crc32(word.encode()))
    return draws.normal(size=LABELS)


def predict(text: str) -> np.ndarray:
    """[K] of a bag of words."""
    scores = sum((weigh(word) for word in text.replace(",", " ").split()), np.zeros(LABELS))
    shares = np.exp(scores - scores.max())
    return np.round(shares / shares.sum(), 6)


class Other(WordCandidates):
    def propose(self, places: Sequence[Place]) -> list[list[str]]:
        return [other(text, number) for text, number in places]


def other(text: WordText, number: int) -> list[str]:
    word = text.word(number)
    draws = random.Random(word)
    return [] if word.endswith("7") else draws.sample(VOCAB, 3)


def fits(first: WordText, changed: WordText) -> bool:
    return zlib.crc32((first.text + changed.text).encode()) % 4 > 0


CONSTRAINTS = [ChangedOnce(), KeepStopWords(words=["w1", "w2"]), ShareChanged(share=0.6)]


def allows(first: WordText, now: WordText, number: int) -> bool:
    changed = [n for n in range(len(first)) if first.word(n) != now.word(n)]
    room = number in changed or len(changed) < max(1, int(0.6 * len(first)))
    return number not in changed and first.word(number) not in ("w1", "w2") and room


def make_texts(count: int) -> list[str]:
    draws = random.Random(4)
    return [
        ", ".join(" ".join(draws.choices(VOCAB, k=draws.randint(1, 4))) for _ in range(2))
        for _ in range(count)
    ]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("window", [1, 7, 200])
@pytest.mark.parametrize("width", [0, 1, 3])
def test_100_texts_are_attacked_as_one_by_one(window: int, width: int) -> None:
    texts = make_texts(100)
    golds = [int(predict(text).argmax()) for text in texts]
    search: AttackSearch = AttackBeam(width=width) if width else ByImportance()
    sizes: list[int] = []

    def score(items: list[tuple[int, str]]) -> list[np.ndarray]:
        sizes.append(len(items))
        return [predict(text) for _, text in items]

    def keep(pairs: list[Pair]) -> list[bool]:
        return [fits(*pair) for pair in pairs]

    model = AskedOnce(score)
    found = attack_together(
        [
            search.search(WordText.of(text), gold, predict(text), CONSTRAINTS)
            for text, gold in zip(texts, golds, strict=True)
        ],
        score=model,
        propose=AskedOnce(Other().propose),
        keep=AskedOnce(keep),
        window=window,
    )
    for text, gold, (end, queries) in zip(texts, golds, found, strict=True):
        given = (text, gold, predict, other, allows, fits)
        wanted = attack_by_beam(*given, width) if width else attack_by_importance(*given)
        assert (end.text.text, end.fooled) == wanted[:2]
        assert queries in (wanted[2], wanted[2] - 1)  # the text itself was asked before
        assert end.fooled == (int(predict(end.text.text).argmax()) != gold)
    assert {end.fooled for end, _ in found} == {True, False}
    assert model.answered == sum(sizes) < model.asked
    if window == 200:
        assert max(sizes) > 100


def test_importance_is_equation_2() -> None:
    whole = np.array([0.6, 0.3, 0.1])
    without = np.array([[0.5, 0.4, 0.1], [0.2, 0.7, 0.1]])
    assert measure_importance(whole, without, 0) == pytest.approx([0.1, 0.4 + 0.4])


def test_a_text_keeps_all_that_is_between_its_words() -> None:
    text = WordText.of("It's a well-made film, 很好看!\n")
    assert [text.word(n) for n in range(len(text))] == [
        *("It's", "a", "well-made", "film", "很", "好", "看")
    ]
    assert text.text == "It's a well-made film, 很好看!\n"
    assert text.replace(3, "movie").text == "It's a well-made movie, 很好看!\n"
    assert text.replace(3, "movie").differing(text) == [3]
    assert text.delete(0) == "a well-made film, 很好看!\n"
    assert text.delete(1) == "It's well-made film, 很好看!\n"
    assert text.delete(5) == "It's a well-made film, 很看!\n"
    assert len(WordText.of("?!")) == 0
    assert WordText.of("").text == ""


def test_wrong_numbers_are_refused() -> None:
    with pytest.raises(ConfigError, match="width"):
        AttackBeam(width=0)
    with pytest.raises(ConfigError, match="share"):
        ShareChanged(share=0.0)
