"""Pieces of Chinese words: no token goes over a word, offsets are those of the text, and a
folder has it all.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from plmctl.core.errors import ConfigError, UsageError
from plmctl.text import segment
from plmctl.text.segmented import FILE, space_words
from plmctl.text.tokenizer import Tokenizer

pytest.importorskip("jieba")
TEXTS = [
    "我们喜欢音乐和电影",
    "电影院在学校旁边",
    "他们在学校学习音乐",
    "I like 电影 and music",
    "学校里有电影院，我们喜欢",
] * 4


@pytest.fixture(scope="module")
def words() -> Tokenizer:
    return Tokenizer.train(TEXTS, kind="wordpiece", vocab_size=70, segment="jieba")


def test_spaces_stand_between_words_alone() -> None:
    changed, place = space_words("我们喜欢 pop音乐", segment.jieba)
    assert changed.split() == ["我们", "喜欢", "pop", "音乐"]
    assert [
        ("我们喜欢 pop音乐" + "$")[p] for p, c in zip(place, changed, strict=False) if c != " "
    ] == list("我们喜欢pop音乐")
    assert space_words("no Chinese, don't cut", segment.jieba)[0] == "no Chinese, don't cut"


def test_words_are_tokens_and_characters_are_not_lost(words: Tokenizer) -> None:
    chars = Tokenizer.train(TEXTS, kind="wordpiece", vocab_size=53)
    text = "我们在电影院学习音乐"
    assert words.pieces(words.encode(text)) == ["我们", "在", "电影院", "学习", "音乐"]
    assert chars.pieces(chars.encode(text)) == list(text)
    assert words.decode(words.encode(text)) == text
    cut = words.pieces(words.encode("学院"))  # no word of the vocabulary: pieces of it, not [UNK]
    assert words.roles.unk not in cut


def test_offsets_are_those_of_the_text(words: Tokenizer) -> None:
    for text in TEXTS[:5]:
        ids, spans = words.encode_offsets(text)
        assert ids == words.encode(text)
        for piece, (start, end) in zip(words.pieces(ids), spans, strict=True):
            assert piece.removeprefix("##") == text[start:end].lower()
        bounds = {edge for pair in segment.jieba(text) for edge in pair}
        pieces = words.pieces(ids)
        assert all(
            start in bounds
            for piece, (start, _) in zip(pieces, spans, strict=True)
            if not piece.startswith("##")
        )


def test_a_folder_has_it_and_no_other_segmenter(words: Tokenizer, tmp_path: Path) -> None:
    words.save(tmp_path / "t")
    again = Tokenizer.load(tmp_path / "t")
    assert again.fingerprint == words.fingerprint
    assert again.encode(TEXTS[1]) == words.encode(TEXTS[1])
    with pytest.raises(UsageError, match="Hugging Face"):
        words.export_hf(tmp_path / "hf", model_max_length=8)
    (tmp_path / "t" / FILE).write_text("os.system")
    with pytest.raises(ConfigError, match="jieba"):
        Tokenizer.load(tmp_path / "t")
    with pytest.raises(ConfigError, match="did you mean 'jieba'"):
        Tokenizer.train(TEXTS, kind="wordpiece", vocab_size=70, segment="jeiba")


def test_a_dictionary_of_the_user_adds_words(tmp_path: Path) -> None:
    file = tmp_path / "words.txt"
    text = "蓝瘦香菇是网络流行语"
    file.write_text("\ufeff蓝瘦香菇 9999 n\r\n\n网络流行语\n", encoding="utf-8")
    found = segment.find(f"jieba:{file}")
    assert [text[start:end] for start, end in found(text)] == ["蓝瘦香菇", "是", "网络流行语"]
    assert [*segment.jieba(text)] != [*found(text)]  # it is in no other segmenter
    assert [*segment.find("jieba_hmm")(text)] == [*segment.jieba_hmm(text)]
