"""The sliding window over a passage, against the published algorithms as loops."""

from __future__ import annotations

import math

import pytest

from plmctl.tasks.sliding_window import SearchedPassage
from plmctl.text.function_words import ENGLISH

CONTEXT = (
    "Anna Bell was born in Kiel in 1901. She sold red boats to a bank in Bonn. 他在北京大学工作。"
)
SENTENCE = "in kiel red boats and blue boats were sold last year for gold coins in bonn"


def slide(asked: set[str], own: set[str], words: list[str]) -> float:
    """MCTest's algorithm 1 less its algorithm 2."""
    window = asked | own
    sums = [
        sum(math.log(1 + 1 / words.count(w)) for w in words[j : j + len(window)] if w in window)
        for j in range(len(words))
    ]
    near = [i for i, w in enumerate(words) if w in asked and w not in ENGLISH]
    here = [i for i, w in enumerate(words) if w in own]
    d = min(abs(i - j) for i in near for j in here) / (len(words) - 1) if near else 1.0
    return max(sums) - d


@pytest.mark.parametrize("asked", ["what red boats were sold for", "where is gold", "who was it"])
@pytest.mark.parametrize("own", ["kiel", "last year", "coins", "blue"])
def test_the_score_is_that_of_the_paper(asked: str, own: str) -> None:
    passage, sides = SearchedPassage(SENTENCE), ({*asked.split()}, {*own.split()})
    found = passage.sentences[0].score(*sides, passage.gain)
    assert found == pytest.approx(slide(*sides, SENTENCE.split()))


@pytest.mark.parametrize("choice", ["red coins", "boats sold for gold", "a ship", ""])
def test_a_choice_is_rated_in_the_whole_passage(choice: str) -> None:
    words, window = SENTENCE.split(), {*choice.split()}
    best = max(
        sum(math.log(1 + 1 / words.count(w)) for w in words[j : j + len(window)] if w in window)
        for j in range(len(words))
    )
    assert SearchedPassage(SENTENCE).rate(choice) == pytest.approx(best)
    assert SearchedPassage("").rate(choice) == 0


def test_answers_stand_in_the_sentence_with_most_words_of_the_question() -> None:
    passage = SearchedPassage(CONTEXT)
    assert passage.answer("Where did she sell red boats?")[0] in ("sold", "bank", "Bonn")
    assert passage.answer("When was Anna Bell born?")[0] in ("Kiel", "1901")
    # 他 在 工 作, 他在 and 工作 of 6 characters and 5 pairs
    assert passage.answer("他在哪里工作？") == ("北京大学", pytest.approx(6 / 11))
    assert SearchedPassage("").answer("Who?") == ("", 0.0)


def test_candidates_are_runs_between_function_words_and_those_of_the_question() -> None:
    runs = (
        SearchedPassage("The U.S.-made $5 coin, found in Kiel!")
        .sentences[0]
        .find_candidates({"found"})
    )
    assert [[unit.text for unit in run] for run in runs] == [
        ["u", ".", "s", ".", "-", "made", "$", "5", "coin"],
        ["kiel"],
    ]
