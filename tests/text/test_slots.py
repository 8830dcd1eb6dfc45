"""Sentinels and unused slots: in every kind, saved, exported; and those of T5-like folders.
Whole words as a vocabulary.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from plmctl.core.errors import ConfigError
from plmctl.text.tokenizer import Tokenizer
from plmctl.text.train import KINDS as RECIPES
from tests.text.test_tokenizer import CHINESE, KINDS, TEXTS

SPELLED = "<extra_id_0> a [unused1] <extra_id_19>"


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", KINDS)
def test_every_kind_has_slots(tmp_path: Path, name: str) -> None:
    numbers = {**KINDS[name], "vocab_size": 900}
    tokenizer = Tokenizer.train(TEXTS, kind=name.split()[0], **numbers, sentinels=20, unused=3)
    vocab = tokenizer.vocab
    assert tokenizer.pieces(vocab.sentinels) == [f"<extra_id_{n}>" for n in range(20)]
    assert tokenizer.pieces(vocab.unused) == ["[unused0]", "[unused1]", "[unused2]"]
    assert vocab.size == 900 or tokenizer.kind == "char"
    slots = [*vocab.sentinels, *vocab.unused]
    assert vocab.special[slots].all()
    assert vocab.word_start[slots].all()
    assert not vocab.special[tokenizer.encode(SPELLED)].any()
    assert tokenizer.decode([*slots[:2], *tokenizer.encode("the value"), slots[-1]]) == "the value"
    tokenizer.save(tmp_path / "ours")
    tokenizer.export_hf(tmp_path / "hf", model_max_length=64)
    without = Tokenizer.train(TEXTS, kind=name.split()[0], **numbers)  # type: ignore[arg-type]
    assert without.vocab.sentinels == without.vocab.unused == ()
    assert without.fingerprint != tokenizer.fingerprint
    for folder in ("ours", "hf"):
        again = Tokenizer.load(tmp_path / folder)
        assert (again.vocab.sentinels, again.vocab.unused) == (vocab.sentinels, vocab.unused)
        assert again.roles == tokenizer.roles
        assert again.encode_batch(TEXTS[:100]) == tokenizer.encode_batch(TEXTS[:100])


@pytest.mark.parity
@pytest.mark.parametrize("kind", ["unigram", "wordpiece", "byte_bpe"])
def test_slots_are_special_to_transformers(tmp_path: Path, kind: str) -> None:
    transformers = pytest.importorskip("transformers")
    tokenizer = Tokenizer.train(TEXTS, kind=kind, vocab_size=900, sentinels=5, unused=1)
    tokenizer.export_hf(tmp_path, model_max_length=64)
    published = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert published.encode("<extra_id_0><extra_id_4>[unused0]", add_special_tokens=False) == [
        tokenizer.vocab.sentinels[0],
        tokenizer.vocab.sentinels[4],
        tokenizer.vocab.unused[0],
    ]
    assert len(published) == 900


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "key", ["extra_ids", "tokenizer_class", "additional_special_tokens", "extra_special_tokens"]
)
def test_a_bare_model_of_t5(tmp_path: Path, key: str) -> None:
    plain = Tokenizer.train(TEXTS, kind="unigram", vocab_size=600)
    plain.save(tmp_path)
    (tmp_path / "plmctl_tokenizer.json").unlink()
    (tmp_path / "sentencepiece.model").rename(tmp_path / "spiece.model")
    names: list[object] = [f"<extra_id_{n}>" for n in range(7)]
    value = {
        "extra_ids": 7,
        "tokenizer_class": "T5Tokenizer",
        "extra_special_tokens": [{"content": name} for name in names],
    }
    config = {
        "pad_token": "[PAD]",
        "eos_token": "[SEP]",
        "unk_token": "[UNK]",
        key: value.get(key, names),
    }
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    loaded = Tokenizer.load(tmp_path)
    count = 100 if key == "tokenizer_class" else 7
    assert loaded.vocab.size == 600 + count
    # T5: the first one is the last id
    assert loaded.vocab.sentinels == tuple(range(600 + count - 1, 599, -1))
    assert loaded.vocab.single == ("A", "eos")
    ids = loaded.encode("the value of <extra_id_0>")
    assert max(ids) < 600
    last = loaded.vocab.sentinels[0]
    assert (
        loaded.decode([last, *ids[:3], last], skip_special=False)
        == "<extra_id_0> the value of <extra_id_0>"
    )
    loaded.save(tmp_path / "saved")
    loaded.export_hf(tmp_path / "hf", model_max_length=64)
    for folder in ("saved", "hf"):
        again = Tokenizer.load(tmp_path / folder)
        assert again.vocab.sentinels == loaded.vocab.sentinels
        assert again.encode_batch(TEXTS[:200]) == loaded.encode_batch(TEXTS[:200])


@pytest.mark.parity
def test_the_folder_of_a_t5_tokenizer(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    scores = [
        ("<pad>", 0.0),
        ("</s>", 0.0),
        ("<unk>", 0.0),
        ("▁the", -2.0),
        ("▁", -3.0),
        *((c, -4.0) for c in "abcdetuv"),
    ]
    published = transformers.T5Tokenizer(vocab=scores, extra_ids=10)
    published.save_pretrained(tmp_path)
    loaded = Tokenizer.load(tmp_path)
    expected = [published.convert_tokens_to_ids(f"<extra_id_{n}>") for n in range(10)]
    assert list(loaded.vocab.sentinels) == expected
    assert loaded.vocab.special[expected].all()
    assert loaded.vocab.single == ("A", "eos")
    assert loaded.encode("the cat ate") == published.encode("the cat ate", add_special_tokens=False)
    assert (loaded.vocab.pad, loaded.vocab.eos, loaded.vocab.cls) == (0, 1, None)


def test_slots_that_cannot_be() -> None:
    for name in ("sentinels", "unused"):
        with pytest.raises(ConfigError, match=rf"tokenizer\.{name}=-1: 0 or more"):
            RECIPES["char"](**{name: -1})
    for kind in ("char", "word", "wordpiece", "byte_bpe", "unigram"):
        with pytest.raises(ConfigError, match=r"vocab_size=20: .* take \d+"):
            Tokenizer.train(TEXTS[:50], kind=kind, vocab_size=20, sentinels=30)


def test_a_sample_is_counted(tmp_path: Path) -> None:
    tokenizer = Tokenizer.train(["one two", CHINESE, "three"] * 50, kind="char", vocab_size=100)
    assert tokenizer.sampled == {"sentences": 150, "bytes": 50 * (12 + len(CHINESE.encode()))}
    tokenizer.save(tmp_path)
    assert Tokenizer.load(tmp_path).sampled == tokenizer.sampled


def test_words_by_frequency() -> None:
    texts = ["b a, a! a\n北京", "b  A"]
    tokenizer = Tokenizer.train(texts, kind="word", vocab_size=100)
    assert tokenizer.pieces(range(5, 12)) == ["a", "b", "!", ",", "A", "京", "北"]
    assert tokenizer.vocab.word_start.all()
    assert tokenizer.pieces(tokenizer.encode("a b,c 北")) == ["a", "b", ",", "[UNK]", "北"]
    small = Tokenizer.train(texts, kind="word", vocab_size=8)
    assert small.pieces(range(8))[5:] == ["a", "b", "!"]
    spaced = Tokenizer.train(
        texts, kind="word", vocab_size=100, punctuation=False, lowercase=True, min_frequency=2
    )
    assert spaced.pieces(range(5, spaced.vocab.size)) == ["a", "b"]
    assert spaced.pieces(spaced.encode("A a! B")) == ["a", "[UNK]", "b"]
