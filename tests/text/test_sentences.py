"""Sentence ends: the rules of the two languages, and that nothing of the text is lost."""

from __future__ import annotations

import pytest

from plmctl.text.sentences import LONGEST, pieces, split

CASES = {
    'He left. She stayed!  "Why?" Nobody knew.': [
        "He left.",
        "She stayed!",
        '"Why?"',
        "Nobody knew.",
    ],
    "Mr. Smith met Dr. J. R. Doe of the U.S. Army vs. No. 5 at 8 p.m. Then he slept.": [
        "Mr. Smith met Dr. J. R. Doe of the U.S. Army vs. No. 5 at 8 p.m.",
        "Then he slept.",
    ],
    "Pi is 3.14 and e.g. Euler is 2.71. No. That is all.": [
        "Pi is 3.14 and e.g. Euler is 2.71.",
        "No.",
        "That is all.",
    ],
    'He said "Stop." Then (at last.) he stopped... and slept.': [
        'He said "Stop."',
        "Then (at last.) he stopped... and slept.",
    ],
    "It cost 5 dollars. 12 were sold.": ["It cost 5 dollars.", "12 were sold."],
    "One line\nanother line": ["One line", "another line"],
    "你好。我很好！你呢？“好吧。”他说；走了……明天见": [
        "你好。",
        "我很好！",
        "你呢？",
        "“好吧。”",
        "他说；",
        "走了……",
        "明天见",
    ],
    "价格是3.14元，比A.B.高：不贵。真的!是吗?好": [
        "价格是3.14元，比A.B.高：不贵。",
        "真的!",
        "是吗?",
        "好",
    ],
    "wait…what": ["wait…what"],
    "": [],
    " \n ": [],
}


@pytest.mark.parametrize("text", CASES)
def test_the_rules(text: str) -> None:
    assert split(text) == CASES[text]


@pytest.mark.parametrize("text", [*CASES, "  a. B\n\nC.  \n", "。。。", "。\n。", "a.\n"])
def test_nothing_is_lost(text: str) -> None:
    found = pieces(text)
    assert "".join(found) == text
    assert all(piece.strip() for piece in found) or text.isspace()


@pytest.mark.parametrize(
    "text",
    [
        "word " * 3000,
        "中文" * 5000,
        "x" * 20000,
        "a. B " + "  word" * 3000 + " ",
        "ab\n" * 20 + "c" * 9000,
    ],
)
def test_what_has_no_end_is_cut_and_joined_is_the_text(text: str) -> None:
    found = pieces(text)
    assert "".join(found) == text
    assert max(map(len, found)) <= LONGEST
    assert len(found) >= len(text) // LONGEST


def test_words_stay_whole_where_a_sentence_is_cut() -> None:
    words = [f"w{n}" for n in range(5000)]
    assert " ".join(split(" ".join(words))).split() == words
