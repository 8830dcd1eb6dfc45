"""N-grams of words: worked cases, and the vocabulary against counts."""

from __future__ import annotations

from collections import Counter

import numpy as np

from plmctl.knowledge.ngrams import EDGE, END, PAD, UNKNOWN, NgramVocabulary, spell_ngrams


def shown(word: str, least: int, most: int) -> str:
    return " ".join(spell_ngrams(word, least, most)).replace(EDGE, "^").replace(END, "$")


def test_worked_cases():
    assert shown("cat", 3, 5) == "^ca cat at^ ^cat cat^ ^cat^"
    assert shown("a", 3, 5) == "^a^"
    assert shown("cat", 3, 3) == "^ca cat at$"  # one length: the end has a mark of its own
    assert shown("über", 4, 5) == "^übe über ber^ ^über über^"
    for length in range(1, 12):
        spelled = spell_ngrams("x" * length, 3, 5)
        assert len(spelled) == sum(max(0, length + 2 - n + 1) for n in (3, 4, 5))


def test_frequent_ngrams_of_listed_words_each_counted_once():
    words = ["cat", "cats", "concat", "scat", "cat", "cat", "dog"]
    counts = Counter(n for word in set(words) for n in spell_ngrams(word, 3, 5))
    vocabulary = NgramVocabulary.learn(words, least=3, most=5, often=2, size=100)
    assert set(vocabulary.ngrams) == {n for n, count in counts.items() if count >= 2}
    assert [counts[n] for n in vocabulary.ngrams] == sorted(
        (count for count in counts.values() if count >= 2), reverse=True
    )
    assert (UNKNOWN, PAD, vocabulary.ids[vocabulary.ngrams[0]]) == (0, 1, 2)
    assert vocabulary.encode("dog") == [UNKNOWN] * 6
    smaller = NgramVocabulary.learn(words, least=3, most=5, often=2, size=5)
    assert smaller.ngrams == vocabulary.ngrams[:3]
    padded = vocabulary.encode_all(["concat", "a"])
    assert padded[0].tolist() == vocabulary.encode("concat")
    assert padded[1].tolist() == [UNKNOWN] + [PAD] * (padded.shape[1] - 1)


def test_a_vocabulary_is_kept_as_letters():
    vocabulary = NgramVocabulary.learn(["naïve", "𝔘n"], least=3, most=5, often=1, size=100)
    table = vocabulary.letters(40)
    assert table.shape == (40, 5)
    assert (table[:2] == 0).all()
    assert NgramVocabulary.from_letters(table, least=3, most=5) == vocabulary
    assert NgramVocabulary.from_letters(np.zeros((9, 5), np.int32), least=3, most=5).ngrams == ()
