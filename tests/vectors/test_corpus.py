"""Texts as numbers of words, words that are drawn, windows, and counts of pairs, as loops."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from plmctl.core.errors import DataError
from plmctl.vectors.cooccurrence import count_near
from plmctl.vectors.corpus import count_corpus
from plmctl.vectors.noise_words import NoiseWords
from plmctl.vectors.windows import WindowSettings, draw_reaches, read_rows, share_kept
from tests.vectors.tiny_text import make_corpus

SENTENCES = ["the cat saw the dog", "a dog saw it", "", "the cat", "rare the"]


def test_a_text_is_counted(tmp_path: Path) -> None:
    corpus = make_corpus(SENTENCES, tmp_path, least=2)
    assert dict(zip(corpus.words, corpus.counts.tolist(), strict=True)) == {
        **{"the": 4, "cat": 2, "saw": 2, "dog": 2}
    }
    assert corpus.words[0] == "the"
    assert corpus.total == 10
    for size in (1, 4, 100):  # blocks have whole sentences
        blocks = list(corpus.read_blocks(size))
        sentences: dict[tuple[int, int], list[str]] = {}
        for block, read in enumerate(blocks):
            for number, sentence in zip(*read, strict=True):
                sentences.setdefault((block, int(sentence)), []).append(corpus.words[number])
        wanted = [["the", "cat", "saw", "the", "dog"], ["dog", "saw"], ["the", "cat"], ["the"]]
        assert list(sentences.values()) == wanted
    assert list(corpus.read_sentences()) == wanted
    with pytest.raises(DataError, match="1 words stand 3 times or more"):
        make_corpus(SENTENCES, tmp_path, least=3)


def test_words_are_letters_or_what_is_between_spaces(tmp_path: Path) -> None:
    text = ["Well-made, don't! well-made,"]
    found = count_corpus(text, tmp_path, least=1, split="words", lowercase=True)
    assert found.words == ["well-made", "don't"]
    found = count_corpus(text, tmp_path, least=1, split="spaces", lowercase=False)
    assert found.words == ["Well-made,", "don't!", "well-made,"]


def test_negatives_are_drawn_by_a_power_of_the_counts() -> None:
    counts = np.array([1000, 300, 50, 7, 7, 1])
    drawn = NoiseWords(counts, 0.75).draw(np.random.default_rng(0), (400_000,))
    shares = np.bincount(drawn, minlength=6) / len(drawn)
    wanted = counts**0.75 / (counts**0.75).sum()
    np.testing.assert_allclose(shares, wanted, atol=4 * np.sqrt(0.25 / 400_000))


def test_frequent_words_are_left_out() -> None:
    """Kept shares as word2vec's code has them: sqrt(t / f) + t / f."""
    counts = np.array([900, 90, 10])
    wanted = [min(1, (0.01 / f) ** 0.5 + 0.01 / f) for f in (0.9, 0.09, 0.01)]
    np.testing.assert_allclose(share_kept(counts, 0.01), wanted)
    assert share_kept(counts, 0).tolist() == [1, 1, 1]


def test_windows_end_with_their_sentences() -> None:
    sentences = np.array([0] * 5 + [1] + [2] * 9)
    drawn = np.random.default_rng(3).integers(1, 4, 15)
    left, right = draw_reaches(sentences, 3, np.random.default_rng(3))
    for t, s in enumerate(sentences):
        inside = [c for c in range(15) if sentences[c] == s and abs(c - t) <= drawn[t]]
        assert (left[t], right[t]) == (t - min(inside), max(inside) - t)


def test_rows_hold_every_window(tmp_path: Path) -> None:
    """The pairs of all rows are those of a loop over words, whatever the shape of the rows."""
    draw = np.random.default_rng(1)
    text = [
        " ".join(f"w{n}" for n in draw.integers(9, size=draw.integers(1, 12))) for _ in range(30)
    ]
    corpus = make_corpus(text, tmp_path)
    found = []
    for row, rows in ((4, 3), (32, 64)):
        settings = WindowSettings(
            reach=3, sample=0, row=row, rows=rows, shared=2, negatives=5, single=False
        )
        pairs: Counter[tuple[int, int]] = Counter()
        noise = NoiseWords(corpus.counts, 1)
        for each in read_rows(corpus, settings, noise, np.random.default_rng(5)):
            near, met = torch.zeros(row * rows), torch.zeros(len(each.around))
            for b, t, c in each.inside.nonzero().tolist():
                word, other = b * each.bands.band + t, b * each.bands.band + c
                pairs[int(each.words[word]), int(each.around[other])] += 1
                near[word] += 1
                met[other] += 1
            assert torch.equal(each.near, near)
            assert torch.equal(each.of_outputs[: len(met)], met)
            assert len(each.drawn) == 2 * rows
        assert each.done == corpus.total
        found.append(pairs)
    generator = np.random.default_rng(5)
    ((words, sentences),) = corpus.read_blocks(1 << 20)
    generator.random(len(words), np.float32)  # what is left out
    left, right = draw_reaches(sentences, 3, generator)
    wanted: Counter[tuple[int, int]] = Counter()
    for t, word in enumerate(words):
        for c in range(t - left[t], t + right[t] + 1):
            if c != t:
                wanted[int(word), int(words[c])] += 1
    assert found == [wanted, wanted]


def test_pairs_are_counted_by_distance(tmp_path: Path) -> None:
    corpus = make_corpus(SENTENCES, tmp_path, least=2)
    wanted: Counter[tuple[str, str]] = Counter()
    for words in corpus.read_sentences():
        for i, one in enumerate(words):
            for j, other in enumerate(words):
                if i != j and abs(i - j) <= 3:
                    wanted[one, other] += 1 / abs(i - j)  # type: ignore[assignment]
    counted = count_near(corpus, 3)
    names = [
        (corpus.words[i], corpus.words[j])
        for i, j in zip(counted.first, counted.second, strict=True)
    ]
    found = dict(zip(names, counted.counts.tolist(), strict=True))
    assert len(found) == len(counted.counts)
    assert found == pytest.approx(dict(wanted))
