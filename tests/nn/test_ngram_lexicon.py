"""The lexicon of n-grams: what it takes from a text, and where rows have it, as loops."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest
import torch
from torch import Tensor

from plmctl.core.errors import ConfigError
from plmctl.nn.ngram_lexicon import Matches, Ngram, NgramLexicon

V = 12
SPECIAL = np.array([True, True, *[False] * (V - 2)])


def text(length: int = 600) -> np.ndarray:
    """Random tokens with phrases that come again, and special tokens among them."""
    numbers = np.random.default_rng(4)
    phrases = [[2, 3, 4], [5, 6], [2, 3, 4, 7, 8], [9, 9]]
    found: list[int] = []
    while len(found) < length:
        phrase = phrases[numbers.integers(4)]
        found += phrase if numbers.random() < 0.5 else numbers.integers(0, V, 2).tolist()
    return np.array(found[:length])


def find_by_hand(ids: list[int], *, longest: int, often: int, pmi: float) -> Counter[Ngram]:
    single, pairs = Counter(ids), Counter(itertools.pairwise(ids))
    counts: Counter[Ngram] = Counter()
    for size in range(2, longest + 1):
        for start in range(len(ids) - size + 1):
            ngram = tuple(ids[start : start + size])
            if not any(SPECIAL[token] for token in ngram) and all(
                math.log(pairs[x, y] * len(ids) / (single[x] * single[y])) >= pmi
                for x, y in itertools.pairwise(ngram)
            ):
                counts[ngram] += 1
    return Counter({ngram: count for ngram, count in counts.items() if count >= often})


def make(**settings: float) -> NgramLexicon:
    given = {"count": 40, "longest": 4, "often": 5, "pmi": 0.3, "most": 64, **settings}
    lexicon = NgramLexicon(**given)  # type: ignore[arg-type]
    lexicon.learn(text(), SPECIAL)
    return lexicon


def read_back(lexicon: NgramLexicon) -> dict[int, Ngram]:
    """{number: n-gram} of the tree."""
    paths: dict[int, Ngram] = {0: ()}
    found = {}
    for node, edge in enumerate(lexicon.edges.tolist(), 1):
        if edge < 1 << 60:
            paths[node] = (*paths[edge >> 24], edge % (1 << 24))
            if end := int(lexicon.ends[node]):
                found[end - 1] = paths[node]
    return found


@pytest.mark.parametrize(
    "settings", [{}, {"longest": 2}, {"pmi": 0.0}, {"often": 12}, {"count": 3}, {"longest": 7}]
)
def test_learns_what_the_definition_says(settings: dict[str, float]) -> None:
    lexicon = make(**settings)
    counts = find_by_hand(
        text().tolist(), longest=lexicon.longest, often=lexicon.often, pmi=lexicon.pmi
    )
    frequent = sorted(counts, key=lambda ngram: (-counts[ngram], len(ngram), ngram))
    assert read_back(lexicon) == dict(enumerate(frequent[: lexicon.count]))
    assert lexicon.known == min(len(frequent), lexicon.count) > 1


def search_by_hand(
    lexicon: NgramLexicon, row: list[int], homes: list[int] | None
) -> list[tuple[int, int, int]]:
    """(number, start, size), the longest first, then from the left."""
    known = {ngram: number for number, ngram in read_back(lexicon).items()}
    found = [
        (known[ngram], start, size)
        for size in range(2, lexicon.longest + 1)
        for start in range(len(row) - size + 1)
        if (ngram := tuple(row[start : start + size])) in known
        and (homes is None or len(set(homes[start : start + size])) == 1)
    ]
    return sorted(found, key=lambda each: (-each[2], each[1]))[: lexicon.most]


def triples(found: Matches, row: int) -> list[tuple[int, int, int]]:
    count = int(found.length[row])
    parts = (part[row].tolist() for part in (found.numbers, found.start, found.size))
    every = list(zip(*parts, strict=True))
    assert all(each == (0, 0, 0) for each in every[count:])
    return every[:count]


@pytest.mark.parametrize("most", [64, 3])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("length", [30, 3])
def test_finds_what_stands_in_rows(most: int, packed: bool, length: int) -> None:
    lexicon = make(most=most)
    ids = torch.from_numpy(text(8 * length)).view(8, length)
    homes: Tensor | None = None
    if packed:
        homes = (torch.arange(length) >= length // 2).long().expand(8, -1)
    found = lexicon(ids, homes)
    some = 0
    for row in range(8):
        wanted = search_by_hand(
            lexicon, ids[row].tolist(), None if homes is None else homes[row].tolist()
        )
        assert triples(found, row) == wanted
        some += len(wanted)
    assert some > 2


def test_rows_without_any_and_an_empty_lexicon() -> None:
    found = make()(torch.ones(2, 5, dtype=torch.int64))
    assert found.length.tolist() == [0, 0]
    assert found.size.shape == (2, 1)
    empty = NgramLexicon(count=4, longest=3, often=1, pmi=0.0, most=8)
    assert empty(torch.from_numpy(text(20)).view(2, 10)).length.tolist() == [0, 0]
    empty.learn(np.array([3]), SPECIAL)
    assert empty.known == 0


def test_a_checkpoint_has_it() -> None:
    lexicon, other = make(), NgramLexicon(count=40, longest=4, often=9, pmi=9.0, most=64)
    other.load_state_dict(lexicon.state_dict())
    assert read_back(other) == read_back(lexicon)


def test_one_token_is_no_ngram() -> None:
    with pytest.raises(ConfigError, match="longest=1: 2 tokens or more"):
        make(longest=1)
