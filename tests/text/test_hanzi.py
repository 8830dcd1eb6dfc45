"""Simplified and traditional characters: their forms, a text that mixes them, and a tokenizer that
knows one of them.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from plmctl.data.check.characters import CharacterCounts, judge_characters, judge_forms
from plmctl.serve.labels import LabelEngine
from plmctl.tasks.record import Example
from plmctl.tasks.trained_texts import count_text_forms, keep_trained, read_trained_forms
from plmctl.text.hanzi import (
    count_forms,
    describe_other_form,
    find_form,
    find_main_form,
    find_misread,
)
from plmctl.text.tokenizer import Tokenizer
from plmctl.text.unknown import (
    count_unknown_characters,
    describe_full_width,
    describe_unknown,
    find_full_width,
    measure_full_width,
)

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
    assert ("data.segment=jieba_hmm" in found.found) == (verdict != "ok")
    han = sum("一" <= each <= "鿿" for each in text)
    for name, share in found.numbers.items():
        assert share == sum(find_form(each) == name for each in text) / han


def test_other_scripts_have_no_forms() -> None:
    assert judge_forms(Counter("only English")) == []
    assert judge_forms(Counter("日本語を学ぶのはとても楽しいです")) == []


def test_unknown_characters_are_named() -> None:
    tokenizer = Tokenizer.train([SIMPLIFIED], kind="char", vocab_size=64)
    texts = [TRADITIONAL, SIMPLIFIED]
    found = count_unknown_characters(tokenizer, texts)
    known = set(SIMPLIFIED)
    assert found == Counter(each for text in texts for each in text if each not in known)
    said = describe_unknown(0.06, found)
    first, times = found.most_common(1)[0]
    assert said.startswith("6.0% of the tokens are unknown, such as traditional characters: ")
    assert f": {first} {times}, " in said
    few = count_unknown_characters(tokenizer, ["😀😀 １😀１ Q"])
    assert describe_unknown(0.5, few) == "50.0% of the tokens are unknown: 😀 3, １ 2, Q 1"
    assert describe_unknown(0.0, few) == ""


@pytest.mark.parametrize("kind", ["wordpiece", "word"])
def test_full_width_letters_are_usual_ones(kind: str, tmp_path: Path) -> None:
    how: Any = {"kind": kind, "vocab_size": 31, "lowercase": True}
    texts = ["分 12 ab 12 ab 12 ab 分"]
    plain, folded = (
        Tokenizer.train(texts, **how, normalize=normalize) for normalize in (None, "nfkc")
    )
    wanted = plain.encode("分 12 ab")
    assert plain.vocab.unk not in wanted
    assert plain.vocab.unk in plain.encode("分 １２ ＡＢ")
    found = find_full_width(plain, ["分 １２", "12 ab", "ＡＢ：１２", "，分"])
    assert found == {0: {"１２": 1}, 2: {"ＡＢ": 1, "１２": 1}}
    assert measure_full_width(found[0], "分 １２") == pytest.approx(2 / 3)
    said = describe_full_width(found[0] + found[2], 2)
    assert said.startswith("2 texts with full-width letters or digits (１２ 2, ＡＢ 1), which this")
    assert find_full_width(plain, ["分 12，ab"]) == {}
    assert find_full_width(folded, ["分 １２ ＡＢ"]) == {}
    assert folded.encode("分 １２ ＡＢ") == wanted
    folded.save(tmp_path)
    assert Tokenizer.load(tmp_path).encode("分 １２ ＡＢ") == wanted


def test_the_form_of_a_text_is_that_of_most_of_its_characters() -> None:
    assert find_main_form(SIMPLIFIED) == "simplified"
    assert find_main_form(TRADITIONAL) == "traditional"
    assert find_main_form(SIMPLIFIED + TRADITIONAL) == find_main_form("in English 日本") == ""
    assert find_main_form("我们 " + TRADITIONAL) == "traditional"


@pytest.mark.parametrize(
    ("texts", "trained", "said"),
    [
        (
            {"simplified": 9, "traditional": 1},
            {"simplified": 500},
            "1 of 10 Chinese texts are trad",
        ),
        ({"simplified": 3}, {"traditional": 500, "simplified": 4}, "3 of 3 .* 4 of 504 .* -c s2t"),
        ({"traditional": 9}, {"simplified": 99, "traditional": 1}, None),  # some were in training
        ({"simplified": 999, "traditional": 1}, {"simplified": 9}, None),  # hardly any
        ({"traditional": 9}, {"": 500}, None),  # no Chinese
        ({"": 9}, {"simplified": 9}, None),
    ],
)
def test_texts_in_a_form_that_training_lacks_are_named(
    texts: dict[str, int], trained: dict[str, int], said: str | None
) -> None:
    found = describe_other_form(texts, trained)
    assert re.match(said, found) if said else not found


def test_a_run_keeps_the_forms_of_its_training_texts(tmp_path: Path) -> None:
    texts = [SIMPLIFIED, TRADITIONAL, SIMPLIFIED, "English"]
    examples = [Example(str(n), {"text": text}) for n, text in enumerate(texts)]
    keep_trained(tmp_path, examples)
    assert read_trained_forms(tmp_path) == {"simplified": 2, "traditional": 1, "": 1}
    assert count_text_forms(examples) == read_trained_forms(tmp_path)
    keep_trained(new := tmp_path / "new", examples[3:])
    assert not read_trained_forms(new)


def test_a_server_says_once_that_a_text_is_in_the_other_form(capsys: Any) -> None:
    tasks: Any = {"news": SimpleNamespace(trained_forms={"simplified": 9})}
    engine = LabelEngine(tasks, lambda splits: {})
    for text, times in ((SIMPLIFIED, 0), (TRADITIONAL, 1), (TRADITIONAL, 0)):
        engine._warn_of_form("news", [Example("0", {"text": text})])
        assert capsys.readouterr().err.count("are traditional, and 0 of 9") == times


@pytest.mark.parametrize("text", [SIMPLIFIED, TRADITIONAL, "我是", "電話"])
def test_utf8_that_was_read_as_gbk_is_found(text: str) -> None:
    assert find_misread(text.encode().decode("gb18030", "replace"))
    assert not find_misread(text)


def test_lost_characters_are_found() -> None:
    lost = ("\ufffd" * 3).encode().decode("gbk", "ignore")  # 锟斤拷锟斤
    assert find_misread(f"我{lost}") == [f"我{lost}"]
    assert find_misread("烫烫烫")
    for text in ("Привет, мир", "こんにちは世界", "안녕하세요", "naïve café œuvre", "\ud800锟斤"):
        assert not find_misread(text)


def test_forms_of_wrongly_decoded_text_are_no_matter_of_forms() -> None:
    counts = CharacterCounts()
    counts.add(SIMPLIFIED + TRADITIONAL)
    (told,) = [e for e in judge_characters(counts, 9) if e.name == "forms of Chinese"]
    assert "data.segment" in told.found
    (told,) = [e for e in judge_characters(counts, 9, segmented=False) if e.name == told.name]
    assert "data.segment" not in told.found
    counts.add(SIMPLIFIED.encode().decode("gb18030", "replace"))
    names = {each.name: each for each in judge_characters(counts, 9)}
    assert "forms of Chinese" not in names
    assert "UTF-8 was read as GBK" in names["wrongly decoded characters"].advice
