"""Tokenizers of XLM-R, CamemBERT and MPNet from files as the authors released them, against
`transformers`.
"""

from __future__ import annotations

import functools
import io
import json
import random
import unicodedata
from pathlib import Path
from typing import Any

import pytest
import sentencepiece

from plmctl.core.errors import DataError
from plmctl.text.tokenizer import Tokenizer

transformers = pytest.importorskip("transformers")

# the first and the last letter: Latin, Greek, Cyrillic, Hebrew, Arabic, Devanagari, Thai, Georgian,
# Hiragana, Chinese, Hangul
LETTERS = ["az", "αω", "ая", "את", "بي", "कह", "กฮ", "აჰ", "あん", "一京", "가갛"]
SPACES = [" ", "  ", "\t", "\u00a0", "\u3000", " - ", ", ", ". ", "’", "…"]


def draw_texts(count: int, seed: int) -> list[str]:
    """Texts of a few words, each word of one script."""
    draws = random.Random(seed)

    def draw_word() -> str:
        first, last = map(ord, draws.choice(LETTERS))
        word = "".join(chr(draws.randint(first, last)) for _ in range(draws.randint(1, 6)))
        return draws.choice([word, word.title(), word + str(draws.randint(0, 99)), "é" + word])

    return [
        "".join(draw_word() + draws.choice(SPACES) for _ in range(draws.randint(1, 6)))
        for _ in range(count)
    ]


@functools.cache
def train_pieces() -> bytes:
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(draw_texts(900, 0)),
        model_writer=out,
        vocab_size=1200,
        character_coverage=0.98,
        minloglevel=9,
    )
    return out.getvalue()


@pytest.mark.parametrize("kind", ["xlm-roberta", "camembert"])
def test_a_bare_model_has_the_published_ids(kind: str, tmp_path: Path) -> None:
    model = train_pieces()
    (tmp_path / "sentencepiece.bpe.model").write_bytes(model)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": kind}), encoding="utf-8")
    ours = Tokenizer.load(tmp_path)
    name = {"xlm-roberta": "XLMRobertaTokenizer", "camembert": "CamembertTokenizer"}[kind]
    theirs = getattr(transformers, name).from_pretrained(tmp_path)
    texts = draw_texts(1000, 1)
    assert ours.encode_batch(texts) == theirs(texts, add_special_tokens=False)["input_ids"]
    assert ours.vocab.size == len(theirs)
    compare_roles(ours, theirs)
    # the definition: the id of a piece is shifted, an unknown one is 3
    plain = sentencepiece.SentencePieceProcessor(model_proto=model)
    shift = {"xlm-roberta": 1, "camembert": 4}[kind]
    by_hand = [[i + shift if i else 3 for i in plain.encode(text)] for text in texts[:100]]
    assert ours.encode_batch(texts[:100]) == by_hand
    ours.save(tmp_path / "saved")
    assert Tokenizer.load(tmp_path / "saved").fingerprint == ours.fingerprint
    ours.export_hf(tmp_path / "out", model_max_length=64)
    assert Tokenizer.load(tmp_path / "out").encode_batch(texts) == ours.encode_batch(texts)


def compare_roles(ours: Tokenizer, theirs: Any) -> None:
    for role in ("pad", "cls", "sep", "mask", "unk"):
        assert getattr(ours.vocab, role) == getattr(theirs, f"{role}_token_id"), role
    pair = theirs("a", "b")["input_ids"]
    ids = {"cls": theirs.cls_token_id, "sep": theirs.sep_token_id}
    parts = dict(zip("AB", ours.encode_batch(["a", "b"]), strict=True))
    framed = [i for part in ours.roles.pair for i in (parts.get(part) or [ids.get(part)])]
    assert framed == pair


def test_mpnet_uses_the_special_tokens_in_front_of_berts(tmp_path: Path) -> None:
    texts = draw_texts(1000, 2)
    plain = unicodedata.normalize("NFD", "".join(texts).lower())  # its letters have no accents
    letters = sorted({letter for letter in plain if letter.isalnum()})
    berts = ["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters[::2]]
    tokens = ["<s>", "<pad>", "</s>", "<unk>", *berts, *(f"##{one}" for one in letters), "<mask>"]
    (tmp_path / "vocab.txt").write_text("\n".join(tokens) + "\n", encoding="utf-8")
    (tmp_path / "config.json").write_text('{"model_type": "mpnet"}', encoding="utf-8")
    ours = Tokenizer.load(tmp_path)
    theirs = transformers.MPNetTokenizer.from_pretrained(tmp_path)
    assert ours.encode_batch(texts) == theirs(texts, add_special_tokens=False)["input_ids"]
    assert ours.vocab.unk == tokens.index("[UNK]")
    compare_roles(ours, theirs)


@pytest.mark.parametrize("whole", [True, False])
def test_funnel_spells_its_tokens_as_xlnet_and_puts_them_where_bert_does(
    whole: bool, tmp_path: Path
) -> None:
    texts = draw_texts(1000, 2)
    plain = unicodedata.normalize("NFD", "".join(texts).lower())
    letters = sorted({letter for letter in plain if letter.isalnum()})
    tokens = ["<pad>", "<unk>", "<cls>", "<sep>", "<mask>", "<s>", "</s>", *letters[::2]]
    tokens += [f"##{one}" for one in letters]
    (tmp_path / "vocab.txt").write_text("\n".join(tokens) + "\n", encoding="utf-8")
    (tmp_path / "config.json").write_text('{"model_type": "funnel"}', encoding="utf-8")
    theirs = transformers.FunnelTokenizer.from_pretrained(tmp_path)
    if whole:
        theirs.save_pretrained(tmp_path)
    ours = Tokenizer.load(tmp_path)
    assert ours.encode_batch(texts) == theirs(texts, add_special_tokens=False)["input_ids"]
    compare_roles(ours, theirs)


def test_another_model_with_shifted_ids_is_refused(tmp_path: Path) -> None:
    (tmp_path / "sentencepiece.bpe.model").write_bytes(train_pieces())
    (tmp_path / "config.json").write_text('{"model_type": "barthez"}', encoding="utf-8")
    with pytest.raises(DataError, match=r"needs its tokenizer\.json"):
        Tokenizer.load(tmp_path)
