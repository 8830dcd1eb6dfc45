"""Words with contexts: counts and windows against a loop over the sentences, and marks against the
words that they cover.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from plmctl.core.errors import DataError
from plmctl.knowledge import contexts
from plmctl.knowledge.contexts import ContextSettings, is_taken, write_contexts
from plmctl.knowledge.words import WordCounts, read_list

SENTENCES = [
    "The cat sat on the mat, and the Dog saw it.",
    "A dog isn't a cat.",
    "Well-made mats: no cat!",
    "İstanbul has a cat and a dog",
    "cat",
]


# İ has a mark in lower case, which belongs to its letter
WORDS = r"(?:[^\W\d_]\u0307?)+(?:['’-](?:[^\W\d_]\u0307?)+)*"


def read(folder: Path) -> tuple[WordCounts, dict[str, list[tuple[str, str]]]]:
    """The table, and for each word the contexts with what their mark covers."""
    table, found = WordCounts.read(folder), {}
    for line in (folder / "contexts.jsonl").read_text(encoding="utf-8").splitlines():
        document = json.loads(line)
        ends = np.cumsum([len(text) + 1 for text in document["text"].split("\n")])
        word = table.spellings[document["word"][0]["id"]]
        assert word not in found
        found[word] = [
            (
                document["text"].split("\n")[int(np.searchsorted(ends, mark["start"], "right"))],
                document["text"][mark["start"] : mark["end"]],
            )
            for mark in document["word"]
        ]
    return table, found


def test_frequent_words_have_all_of_their_contexts(tmp_path):
    counted = write_contexts(lambda: SENTENCES, tmp_path / "out", ContextSettings(3, 10, 2))
    table, found = read(tmp_path / "out")
    words = [re.findall(WORDS, text.lower()) for text in SENTENCES]
    counts = Counter(word for sentence in words for word in sentence)
    frequent = {word: count for word, count in counts.items() if count >= 3}
    assert dict(zip(table.spellings, table.counts, strict=True)) == frequent
    assert list(table.counts) == sorted(table.counts, reverse=True)
    assert counted == {"words": len(frequent), "contexts": sum(frequent.values()), "without": 0}
    for word, count in frequent.items():
        windows = [
            sentence[max(0, place - 2) : place + 3]
            for sentence in words
            for place, other in enumerate(sentence)
            if other == word
        ]
        assert [re.findall(WORDS, text) for text, _ in found[word]] == windows
        assert [covered for _, covered in found[word]] == [word] * count


def test_a_list_of_words_and_words_without_context(tmp_path):
    (tmp_path / "list.txt").write_text("Dog\nunicycle\t7\ndog\nwell-made\n", encoding="utf-8")
    words = read_list(tmp_path / "list.txt")
    assert words == ["dog", "unicycle", "well-made"]
    counted = write_contexts(lambda: SENTENCES, tmp_path / "out", ContextSettings(), words=words)
    table, found = read(tmp_path / "out")
    assert (table.spellings, table.counts) == (("dog", "unicycle", "well-made"), (3, 0, 1))
    assert counted == {"words": 3, "contexts": 4, "without": 1}
    assert sorted(found) == ["dog", "well-made"]


@pytest.mark.parametrize(("count", "most"), [(5, 2), (7, 7), (1000, 3), (3, 10), (10, 9)])
def test_contexts_are_spread_evenly(count, most):
    taken = [number for number in range(count) if is_taken(number, count, most)]
    assert len(taken) == min(count, most)
    if most < count:
        gaps = np.diff([-1, *taken])
        assert set(gaps) <= {count // most, -(-count // most)}


def test_memory_is_bounded_by_forgetting_rare_words(tmp_path, monkeypatch):
    monkeypatch.setattr(contexts, "ROOM", 50)
    text = [f"the word{chr(97 + n // 26)}{chr(97 + n % 26)} of the day" for n in range(300)]
    table = contexts.count_words(text, 100)
    assert (table.spellings, table.counts) == (("the", "day", "of"), (600, 300, 300))


def test_mistakes_are_named(tmp_path):
    with pytest.raises(DataError, match="no word stands 99 times"):
        write_contexts(lambda: SENTENCES, tmp_path / "out", ContextSettings(least=99))
    assert not list(tmp_path.iterdir())
    (tmp_path / "list.txt").write_text("dog\nnew york\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"list.txt:2: 'new york' is not one word"):
        read_list(tmp_path / "list.txt")
    (tmp_path / "words.tsv").write_text("dog\t3\ncat\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"words.tsv:2: 'cat' is no word with its count"):
        WordCounts.read(tmp_path)
    with pytest.raises(DataError, match=r"there is no words.tsv"):
        WordCounts.read(tmp_path / "absent/list.txt")
