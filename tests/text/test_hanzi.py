"""Simplified and traditional characters: their forms, a text that mixes them, and a tokenizer that
knows one of them.
"""

from __future__ import annotations

from collections import Counter

import pytest

from plmctl.data.check.characters import CharacterCounts, judge_forms
from plmctl.text.hanzi import count_forms, find_form
from plmctl.text.tokenizer import Tokenizer
from plmctl.text.unknown import describe_unknown, name_unknown_form

SIMPLIFIED, TRADITIONAL = "我们在北京学习汉语，问题很难。", "我們在北京學習漢語，問題很難。"


def test_forms_of_characters() -> None:
    """Pairs that differ have opposite forms; common characters, signs and kana have none."""
    for one, other in zip(SIMPLIFIED, TRADITIONAL, strict=True):
        forms = ("", "") if one == other else ("simplified", "traditional")
        assert (find_form(one), find_form(other)) == forms
    assert {find_form(each) for each in "后里台ひァaA1，「镕"} == {""}
    assert count_forms(Counter("们们們我")) == {"simplified": 2, "traditional": 1, "": 1}


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        (SIMPLIFIED * 9, "ok"),
        (SIMPLIFIED * 200 + "語言學", "ok"),  # a name in the other form
        (SIMPLIFIED * 20 + TRADITIONAL, "look"),
        (SIMPLIFIED + TRADITIONAL, "bad"),
    ],
)
def test_a_text_that_mixes_both_is_reported(text: str, verdict: str) -> None:
    counts = CharacterCounts()
    counts.add(text)
    (found,) = judge_forms(counts.used)
    assert found.verdict == verdict
    assert ("opencc" in found.advice) == (verdict != "ok")
    han = sum("一" <= each <= "鿿" for each in text)
    for name, share in found.numbers.items():
        assert share == sum(find_form(each) == name for each in text) / han


def test_other_scripts_have_no_forms() -> None:
    assert judge_forms(Counter("only English")) == []
    assert judge_forms(Counter("日本語を学ぶのはとても楽しいです")) == []


def test_unknown_characters_are_named_by_their_form() -> None:
    tokenizer = Tokenizer.train([SIMPLIFIED], kind="char", vocab_size=64)
    assert name_unknown_form(tokenizer, [TRADITIONAL, SIMPLIFIED]) == "traditional"
    assert name_unknown_form(tokenizer, [SIMPLIFIED]) == ""
    said = "6.0% of the tokens are unknown, such as traditional characters"
    assert describe_unknown(0.06, "traditional") == said
