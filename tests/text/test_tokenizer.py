"""Every kind of tokenizer: round trips, offsets, specials in user text, sizes, and that results
never vary.
"""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import sentencepiece

from plmctl.core.errors import ConfigError, DataError
from plmctl.text.corpus import extract_paragraphs, load_topics
from plmctl.text.recipe import TooLittleText
from plmctl.text.tokenizer import META, Tokenizer
from plmctl.text.train import WordPiece

CHINESE = "今天天气很好，我们去公园散步。北京大学的学生在图书馆读书。中文分词是自然语言处理的基础。"
TOPICS = sorted(load_topics().items())
TEXTS = [paragraph for _, text in TOPICS for paragraph in extract_paragraphs(text)][:1500]
TEXTS += [CHINESE, CHINESE[::-1], "Café naïve déjà vu, Ünïcödé façade."] * 20
KINDS = {
    "unigram": {"vocab_size": 1200},
    "bpe": {"vocab_size": 1200},
    "wordpiece": {"vocab_size": 1200},
    "byte_bpe": {"vocab_size": 1200},
    "char": {"vocab_size": 1200},
    "unigram bytes": {"vocab_size": 1200, "byte_fallback": True},
    "wordpiece cased": {"vocab_size": 1200, "lowercase": False},
    "unigram xlnet": {"vocab_size": 1200, "specials": "xlnet"},
    "byte_bpe gpt2": {"vocab_size": 1200, "specials": "gpt2"},
    "word": {"vocab_size": 1200},
}
ODD = [
    "Hello [MASK] and [CLS][SEP] <s> </s> <mask> <pad> <|endoftext|> [UNK] [PAD]",
    "Café  naïve\tÜ\nnew line",
    "中文🙂字 mixed中英文text",
    "Ⅷ①½ ﬁne ＡＢＣ１２３",
    "e\u0301 combining, 👩‍👩‍👧 joined",
    "  leading and trailing  ",
    "a\u00a0no-break\u3000wide",
    "0000 00000 000000",
    "x" * 150,
    "",
    " ",
    "𠀀𪚥 rare",
]


@pytest.fixture(scope="module")
def made() -> dict[str, Tokenizer]:
    return {
        name: Tokenizer.train(TEXTS, kind=name.split()[0], **numbers)
        for name, numbers in KINDS.items()
    }  # type: ignore[arg-type]


@pytest.fixture(params=KINDS)
def tokenizer(request: pytest.FixtureRequest, made: dict[str, Tokenizer]) -> Tokenizer:
    return made[request.param]


@pytest.mark.sampled(2)
def test_offsets_cover_the_original_text(tokenizer: Tokenizer) -> None:
    for text in [*ODD, *TEXTS[:200], CHINESE]:
        ids, spans = tokenizer.encode_offsets(text)
        assert ids == tokenizer.encode(text)
        assert len(ids) == len(spans)
        assert all(0 <= start <= end <= len(text) for start, end in spans)
        assert all(a[0] <= b[0] for a, b in pairwise(spans))
        covered = {place for start, end in spans for place in range(start, end)}
        if tokenizer.kind in ("byte_bpe", "char") or text in TEXTS:
            assert not [
                c for place, c in enumerate(text) if place not in covered and not c.isspace()
            ]


def test_offsets_of_words_are_exact(tokenizer: Tokenizer) -> None:
    text = "The naïve café in 北京市, e\u0301tude 🙂 Ⅷ end"
    _, spans = tokenizer.encode_offsets(text)
    starts = {start for start, end in spans if end > start}
    assert {
        text.index(word) for word in ("The", "naïve", "café", "北", "京", "🙂", "Ⅷ", "end")
    } - starts <= {
        text.index("京")  # 北京 may be one piece
    }
    assert not any(
        text[start:end] != text[start:end].strip()
        for start, end in spans
        if text[start:end].strip()
    )


def test_batches_and_flat_arrays_agree(tokenizer: Tokenizer) -> None:
    texts = [*ODD, *TEXTS[:50]]
    single = [tokenizer.encode(text) for text in texts]
    assert tokenizer.encode_batch(texts) == single
    flat, lengths = tokenizer.encode_flat(texts)
    assert flat.dtype == np.uint16
    assert flat.tolist() == [i for ids in single for i in ids]
    assert lengths.tolist() == [len(ids) for ids in single]


def test_half_a_surrogate_pair_is_read_as_u_fffd(tokenizer: Tokenizer) -> None:
    """JSON can spell it (`"\\ud800"`), UTF-8 cannot; the libraries would fail on it."""
    text = "sun \ud83d moon\udc00 é"
    plain = text.replace("\ud83d", "\ufffd").replace("\udc00", "\ufffd")
    assert tokenizer.encode(text) == tokenizer.encode(plain)
    assert tokenizer.encode_offsets(text) == tokenizer.encode_offsets(plain)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", KINDS)
def test_learning_from_half_a_surrogate_pair(name: str) -> None:
    numbers = {**KINDS[name], "vocab_size": 600}
    texts = [*TEXTS[:200], "sun \ud83d moon"]
    plain = [*TEXTS[:200], "sun \ufffd moon"]
    made = [Tokenizer.train(each, kind=name.split()[0], **numbers) for each in (texts, plain)]
    assert made[0].fingerprint == made[1].fingerprint


def test_specials_in_a_text_stay_text(tokenizer: Tokenizer) -> None:
    special = tokenizer.vocab.special
    assert special.sum() == len(
        set(tokenizer.roles.tokens) - ({tokenizer.roles.unk} if tokenizer.roles.unk else set())
    )
    for text in [ODD[0], *tokenizer.roles.tokens, "x".join(tokenizer.roles.tokens)]:
        ids = tokenizer.encode(text)
        assert not special[ids].any()


@pytest.mark.parametrize("name", ["byte_bpe", "byte_bpe gpt2"])
def test_bytes_lose_nothing(made: dict[str, Tokenizer], name: str) -> None:
    for text in [*ODD, *TEXTS[:100]]:
        assert made[name].decode(made[name].encode(text)) == text


def test_decoding(made: dict[str, Tokenizer]) -> None:
    text = "the value of a statement, and 中文"
    assert made["unigram"].decode(made["unigram"].encode(text)) == text
    assert made["char"].decode(made["char"].encode(text)) == text
    assert (
        made["wordpiece"].decode(made["wordpiece"].encode("the value of a statement"))
        == "the value of a statement"
    )
    vocab = made["wordpiece"].vocab
    ids = [vocab.id("cls"), *made["wordpiece"].encode("the"), vocab.id("sep")]
    assert made["wordpiece"].decode(ids) == "the"
    assert made["wordpiece"].pieces(ids) == ["[CLS]", "the", "[SEP]"]


@pytest.mark.parametrize("name", ["unigram", "bpe", "unigram bytes"])
def test_ids_are_sentencepieces_own(made: dict[str, Tokenizer], tmp_path: Path, name: str) -> None:
    made[name].save(tmp_path)
    processor = sentencepiece.SentencePieceProcessor(
        model_file=str(tmp_path / "sentencepiece.model")
    )
    # equal scores are rounded differently
    texts = [text for text in [*ODD, *TEXTS] if "000" not in text]
    assert [made[name].encode(text) for text in texts] == [processor.encode(text) for text in texts]


def test_saving_and_loading(tokenizer: Tokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path)
    again = Tokenizer.load(tmp_path)
    assert again.fingerprint == tokenizer.fingerprint
    assert again.roles == tokenizer.roles
    assert again.kind == tokenizer.kind
    assert again.encode_batch(ODD) == tokenizer.encode_batch(ODD)
    assert (again.vocab.word_start == tokenizer.vocab.word_start).all()


def test_roles_and_ids(made: dict[str, Tokenizer]) -> None:
    for name in ("unigram", "bpe", "wordpiece", "char"):
        vocab = made[name].vocab
        assert (vocab.pad, vocab.unk, vocab.cls, vocab.sep, vocab.mask, vocab.bos, vocab.eos) == (
            0,
            1,
            2,
            3,
            4,
            2,
            3,
        )
    roberta = made["byte_bpe"].vocab
    assert (roberta.cls, roberta.pad, roberta.sep, roberta.unk, roberta.mask) == (
        0,
        1,
        2,
        3,
        roberta.size - 1,
    )
    assert roberta.pair == ("cls", "A", "sep", "sep", "B", "sep")
    gpt = made["byte_bpe gpt2"].vocab
    assert gpt.bos == gpt.eos == gpt.pad == gpt.size - 1
    assert gpt.cls is gpt.sep is gpt.mask is gpt.unk is None
    for name, tokenizer in made.items():
        assert tokenizer.vocab.size == 1200 or name == "char"


def test_a_special_that_the_text_spells_is_not_learnt() -> None:
    texts = ["<s> <mask> </s> <|endoftext|>"] * 500 + TEXTS[:300]
    for specials in ("roberta", "gpt2"):
        tokenizer = Tokenizer.train(texts, kind="byte_bpe", vocab_size=600, specials=specials)
        assert not tokenizer.vocab.special[tokenizer.encode(texts[0])].any()
        assert tokenizer.vocab.size == 600
        assert tokenizer.decode(tokenizer.encode(texts[0])) == texts[0]


@pytest.mark.parametrize(
    ("kind", "size"), [("unigram", 9000), ("bpe", 9000), ("wordpiece", 9000), ("byte_bpe", 9000)]
)
def test_a_vocabulary_too_large_for_the_text(kind: str, size: int) -> None:
    texts = TEXTS[:40]
    with pytest.raises(
        ConfigError,
        match=r"tokenizer.vocab_size=9000: .*at most \d+ tokens\n  fix: tokenizer.vocab_size=\d+",
    ) as caught:
        Tokenizer.train(texts, kind=kind, vocab_size=size)
    largest = int(caught.value.fix.split("=")[1].split(",")[0])
    assert Tokenizer.train(texts, kind=kind, vocab_size=largest).vocab.size == largest


@pytest.mark.parametrize("kind", ["unigram", "bpe", "wordpiece", "byte_bpe"])
def test_a_vocabulary_too_small_for_the_alphabet(kind: str) -> None:
    with pytest.raises(ConfigError, match=r"tokenizer.vocab_size=20: .*take \d+"):
        Tokenizer.train(TEXTS, kind=kind, vocab_size=20)


@pytest.mark.parametrize("kind", ["unigram", "bpe", "wordpiece", "char"])
def test_no_text_at_all(kind: str) -> None:
    with pytest.raises((DataError, ConfigError), match=r"no text|at most|cannot train"):
        Tokenizer.train([], kind=kind, vocab_size=300)


def test_unknown_names() -> None:
    with pytest.raises(ConfigError, match="did you mean 'unigram'"):
        Tokenizer.train([], kind="unigrm")
    with pytest.raises(ConfigError, match=r"tokenizer\.specials='gpt'.*did you mean 'gpt2'"):
        Tokenizer.train(TEXTS, kind="byte_bpe", specials="gpt")


@pytest.mark.slow  # starts processes
def test_training_is_the_same_in_every_process(made: dict[str, Tokenizer]) -> None:
    code = "import sys; sys.path.insert(0, sys.argv[1])\n"
    code += "from tests.text import test_tokenizer as t\n"
    code += "kinds = ('unigram', 'wordpiece', 'byte_bpe')\n"
    code += (
        "print(*(t.Tokenizer.train(t.TEXTS, kind=kind, vocab_size=1200).fingerprint for kind in"
        " kinds))"
    )
    out = subprocess.run(
        [sys.executable, "-c", code, str(Path(__file__).resolve().parents[2])],
        capture_output=True,
        text=True,
        check=True,
    )
    assert out.stdout.split() == [
        made[name].fingerprint for name in ("unigram", "wordpiece", "byte_bpe")
    ]


def test_damaged_folders(made: dict[str, Tokenizer], tmp_path: Path) -> None:
    made["wordpiece"].save(tmp_path)
    text = (tmp_path / "tokenizer.json").read_text(encoding="utf-8")
    (tmp_path / "tokenizer.json").write_text(text.replace('"the"', '"thE"'), encoding="utf-8")
    with pytest.raises(DataError, match="do not belong together"):
        Tokenizer.load(tmp_path)
    (tmp_path / "tokenizer.json").write_text(text[:1000], encoding="utf-8")
    with pytest.raises(DataError, match="not a tokenizer file"):
        Tokenizer.load(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(DataError, match="neither"):
        Tokenizer.load(tmp_path)
    (tmp_path / META).write_text("{}", encoding="utf-8")
    with pytest.raises(DataError, match="damaged tokenizer description"):
        Tokenizer.load(tmp_path)
    with pytest.raises(DataError, match="no such tokenizer"):
        Tokenizer.load(tmp_path / "missing")
    (tmp_path / META).unlink()
    with pytest.raises(DataError, match="no tokenizer here"):
        Tokenizer.load(tmp_path)


@pytest.mark.parametrize(
    ("kind", "size"), [("unigram", 42), ("bpe", 64), ("wordpiece", 64), ("char", 64)]
)
def test_no_coverage_takes_a_digit_or_a_mark_of_ascii(kind: str, size: int) -> None:
    lines = ["the card was declined and the payment came back"] * 200
    lines += ["charged 4 times: £3", "Ｘ５", "a17"]
    words = Tokenizer.train(lines, kind=kind, vocab_size=size, character_coverage=0.99)
    unknown = words.vocab.unk
    for text in ("charged 4 times:", "charged 9 times", "a 806", "a17", "a68"):
        assert unknown not in words.encode(text), text
    assert words.encode("charged 4 times") != words.encode("charged 9 times")
    assert unknown in words.encode("£")


def test_a_text_of_a_letter_has_no_vocabulary() -> None:
    with pytest.raises(TooLittleText, match="at most 6 tokens\n  fix: # give more text"):
        Tokenizer.learn_most(lambda: ["x"], WordPiece(vocab_size=100), print)
