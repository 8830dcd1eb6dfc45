"""The dictionary matcher against a loop over all places and names, and by hand-made cases."""

from __future__ import annotations

import re

import numpy as np
import pytest

from plmctl.core.errors import ConfigError
from plmctl.knowledge.dictionary import Dictionary, fold_case


def make(*names: str, **settings: object) -> Dictionary:
    return Dictionary([(name, n, 1) for n, name in enumerate(names)], **settings)


def found(dictionary: Dictionary, text: str) -> list[str]:
    return [text[start:end] for start, end, _ in dictionary.link(text)]


def loop(names: list[str], text: str) -> list[tuple[int, int]]:
    """The longest name from the left that begins and ends at the edge of a run of letters and
    digits; every other sign, and every Chinese character, stands for itself.
    """
    units = [m.span() for m in re.finditer(r"[a-zA-Z0-9_]+|[^a-zA-Z0-9_\s]", text)]
    begins, ends, at, spans = {s for s, _ in units}, {e for _, e in units}, 0, []
    for start in range(len(text)):
        if start < at or start not in begins:
            continue
        for end in sorted(ends, reverse=True):
            if end > start and " ".join(text[start:end].split()) in names:
                spans.append((start, end))
                at = end
                break
    return spans


def test_against_a_loop_over_all_places() -> None:
    rng = np.random.default_rng(0)
    words = ["A", "B", "Cd", "中", "国", ".", "-", "x"]
    for _ in range(200):
        names = list(
            {
                " ".join("".join(rng.choice([*words, " "], rng.integers(1, 7))).split())
                for _ in range(8)
            }
        )
        names = [name for name in names if any(char.isalpha() for char in name)]
        text = "".join(rng.choice([*words, " ", "  ", "\n"], 40))
        dictionary = make(*names, least_length=1, lowercase=True, least_prior=0)
        assert [(s, e) for s, e, _ in dictionary.link(text)] == loop(names, text), (names, text)


@pytest.mark.parametrize(
    ("names", "text", "expected"),
    [
        (("New York", "New York City", "York"), "New York City is New York", [(0, 13), (17, 25)]),
        (("Art",), "Art, Bart, Arts, art", [(0, 3)]),
        (("Ada",), "Ada's book (Ada).", [(0, 3), (12, 15)]),
        (("C++", "C"), "C++ and C", [(0, 3), (8, 9)]),
        (("U.S.",), "the U.S. army", [(4, 8)]),
        (("New York",), "New\n York", [(0, 9)]),
        (("北京", "北京大学"), "在北京大学，北京。", [(1, 5), (6, 8)]),
        (("Ångström",), "An Ångström.", [(3, 11)]),
        (("𝒜 B",), "x 𝒜 B", [(2, 5)]),
        ((), "Ada", []),
        (("Ada",), "", []),
    ],
)
def test_longest_match_at_the_edges_of_words(
    names: tuple[str, ...], text: str, expected: list[tuple[int, int]]
) -> None:
    dictionary = make(*names, least_length=1)
    assert [(start, end) for start, end, _ in dictionary.link(text)] == expected


def test_case_is_folded_if_asked() -> None:
    assert found(make("New York"), "NEW YORK, new york") == []
    assert found(make("New York", fold=True), "NEW YORK, new york") == ["NEW YORK", "new york"]
    assert len(fold_case("İstanbul ẞ")) == len("İstanbul ẞ")


def test_a_name_means_what_it_meant_most_often() -> None:
    names = [("Paris", 0, 90), ("Paris", 1, 10), ("Rio", 2, 5), ("Rio", 3, 6), ("Rio", 4, 5)]
    dictionary = Dictionary(names, least_prior=0.5)
    assert dictionary.candidates("Paris") == [(0, 0.9), (1, 0.1)]
    assert [m.id for m in dictionary.link("Paris and Rio")] == [0]  # of Rio none has half
    assert [m.id for m in Dictionary(names, least_prior=0).link("Paris and Rio")] == [0, 3]
    assert dictionary.candidates("Rome") == []


def test_among_known_entities_rarer_meanings_and_shorter_names_count() -> None:
    names = [("Paris", 0, 90), ("Paris", 1, 10), ("Paris Hilton", 2, 5), ("Hilton", 3, 1)]
    dictionary = Dictionary(names)
    text = "Paris Hilton"
    assert dictionary.link_among(text, {1, 3}) == [(0, 5, 1), (6, 12, 3)]
    assert dictionary.link_among(text, {2}) == [(0, 12, 2)]
    assert dictionary.link_among(text, {9}) == []


def test_names_that_are_words_are_left_out() -> None:
    names = ("the", "it", "1984", "X", "war", "中国")
    assert found(make(*names), "the war in 1984, X, 中国") == ["中国"]
    assert make(*names).left_out == 5
    assert found(make(*names, lowercase=True), "the war, 中国") == ["the", "war", "中国"]
    assert make(" ".join(["A"] * 13)).left_out == 1


def test_a_share_is_between_nothing_and_all() -> None:
    with pytest.raises(ConfigError, match="from 0 to 1"):
        make("Ada", least_prior=2)
