"""Hugging Face folders: what we write gives `transformers` the same ids, and what it writes
gives them to us.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from plmctl.core.errors import DataError
from plmctl.tasks.layouts.encode import lay_out, pad
from plmctl.text.tokenizer import Tokenizer
from tests.text.test_tokenizer import KINDS, ODD, TEXTS

transformers = pytest.importorskip("transformers")
# a special in a text is special to transformers
PLAIN = [text for text in ODD if "[MASK]" not in text]
SAMPLE = [*PLAIN, *TEXTS[:300], *TEXTS[-10:]]


@pytest.fixture(scope="module", params=KINDS)
def exported(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Tokenizer, Path]:
    folder = tmp_path_factory.mktemp("hf")
    tokenizer = Tokenizer.train(TEXTS, kind=request.param.split()[0], **KINDS[request.param])
    tokenizer.export_hf(folder, model_max_length=128)
    return tokenizer, folder


@pytest.mark.sampled(2)
@pytest.mark.parity
def test_auto_tokenizer_gives_the_same_ids(exported: tuple[Tokenizer, Path]) -> None:
    tokenizer, folder = exported
    published = transformers.AutoTokenizer.from_pretrained(folder)
    assert published.model_max_length == 128
    assert len(published) == tokenizer.vocab.size
    assert [
        published.encode(text, add_special_tokens=False) for text in SAMPLE
    ] == tokenizer.encode_batch(SAMPLE)
    for role in ("pad", "unk", "cls", "sep", "mask", "bos", "eos"):
        assert getattr(published, f"{role}_token_id") == getattr(tokenizer.vocab, role)


@pytest.mark.parity
def test_templates(exported: tuple[Tokenizer, Path], tmp_path: Path) -> None:
    """A model with segments needs them of any tokenizer, also of RoBERTa's."""
    tokenizer, folder = exported
    vocab = tokenizer.vocab
    if vocab.cls is None:
        return
    published = transformers.AutoTokenizer.from_pretrained(folder)
    parts = {"A": tokenizer.encode("one"), "B": tokenizer.encode("two words")}
    for order, texts in ((vocab.single, ("one",)), (vocab.pair, ("one", "two words"))):
        assert published(*texts).input_ids == [
            i for role in order for i in (parts[role] if role in parts else [vocab.id(role)])
        ]
    row = lay_out(parts["A"], parts["B"], vocab, max_length=64, pooling="first")
    segments = pad([row], vocab, example=[0]).seqs["text"].tracks["segment"][0]
    assert [*published("one", "two words")] == ["input_ids", "attention_mask"]
    tokenizer.export_hf(tmp_path, model_max_length=128, framed=True, segments=True)
    apart = transformers.AutoTokenizer.from_pretrained(tmp_path)("one", "two words")
    assert apart["token_type_ids"] == segments.tolist()
    assert apart["input_ids"] == published("one", "two words")["input_ids"]


@pytest.mark.sampled(3)
def test_exported_folders_are_read_again(exported: tuple[Tokenizer, Path]) -> None:
    tokenizer, folder = exported
    again = Tokenizer.load(folder)
    assert again.kind == tokenizer.kind
    assert again.roles == tokenizer.roles
    assert again.encode_batch(SAMPLE) == tokenizer.encode_batch(SAMPLE)
    assert (again.vocab.special == tokenizer.vocab.special).all()
    assert (again.vocab.word_start == tokenizer.vocab.word_start).all()
    if tokenizer.kind not in ("unigram", "bpe"):
        assert not again.vocab.special[again.encode(ODD[0])].any()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["wordpiece", "wordpiece cased", "byte_bpe", "byte_bpe gpt2"])
def test_folders_without_tokenizer_json(tmp_path: Path, name: str) -> None:
    tokenizer = Tokenizer.train(TEXTS, kind=name.split()[0], **KINDS[name])
    tokenizer.export_hf(tmp_path, model_max_length=128)
    (tmp_path / "tokenizer.json").unlink()
    for drop in ("nothing", "tokenizer_config.json"):
        (tmp_path / drop).unlink(missing_ok=True)
        again = Tokenizer.load(tmp_path)
        assert again.encode_batch([*ODD, *SAMPLE]) == tokenizer.encode_batch([*ODD, *SAMPLE])
        assert again.roles == tokenizer.roles


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_a_bare_sentencepiece_model(tmp_path: Path, kind: str) -> None:
    tokenizer = Tokenizer.train(TEXTS, kind=kind, vocab_size=1200)
    tokenizer.save(tmp_path / "ours")
    (tmp_path / "hf").mkdir()
    (tmp_path / "ours/sentencepiece.model").rename(tmp_path / "hf/spiece.model")
    again = Tokenizer.load(tmp_path / "hf")
    assert again.kind == kind
    assert again.roles == tokenizer.roles
    assert again.encode_batch(TEXTS[:200]) == tokenizer.encode_batch(TEXTS[:200])
    again.export_hf(tmp_path / "out", model_max_length=64)
    assert Tokenizer.load(tmp_path / "out").encode_batch(TEXTS[:200]) == tokenizer.encode_batch(
        TEXTS[:200]
    )


def test_added_tokens_that_are_not_special_stay_matched(tmp_path: Path) -> None:
    Tokenizer.train(TEXTS, kind="wordpiece", vocab_size=1200).export_hf(
        tmp_path, model_max_length=64
    )
    spec = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    spec["added_tokens"].append(
        {**spec["added_tokens"][0], "id": 1200, "content": "NEWWORD", "special": False}
    )
    (tmp_path / "tokenizer.json").write_text(json.dumps(spec), encoding="utf-8")
    tokenizer = Tokenizer.load(tmp_path)
    assert tokenizer.vocab.size == 1201
    assert 1200 in tokenizer.encode("a NEWWORD here")
    assert not tokenizer.vocab.special[1200]


def test_folders_that_cannot_be_used(tmp_path: Path) -> None:
    tokenizer = Tokenizer.train(TEXTS, kind="unigram", vocab_size=1200)
    tokenizer.save(tmp_path / "ours")
    (tmp_path / "ours/sentencepiece.model").rename(tmp_path / "sentencepiece.bpe.model")
    with pytest.raises(DataError, match=r"needs its tokenizer.json"):
        Tokenizer.load(tmp_path)
    (tmp_path / "sentencepiece.bpe.model").rename(tmp_path / "tokenizer.model")
    (tmp_path / "tokenizer_config.json").write_text("{", encoding="utf-8")
    with pytest.raises(DataError, match="not JSON"):
        Tokenizer.load(tmp_path)
    (tmp_path / "tokenizer_config.json").unlink()
    (tmp_path / "tokenizer.model").write_bytes(b"nonsense")
    with pytest.raises(DataError, match="not a sentencepiece model"):
        Tokenizer.load(tmp_path)
