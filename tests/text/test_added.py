"""Tokens that a folder adds to its vocabulary have their ids, and no text gives a special token,
whatever files say so and whatever the tokenizer learned from.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import models, normalizers, pre_tokenizers

from plmctl.core.errors import DataError
from plmctl.text.tokenizer import Tokenizer
from tests.text.test_tokenizer import KINDS, TEXTS

MARKS = ("<e1>", "<E 2>")
TEXT = "the cat <e1> saw[SEP] the <E 2>dog <mask> </s> [PAD]."


def write_vocab(folder: Path) -> int:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "saw", "dog", ".", "##cat"]
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in words), encoding="utf-8")
    return len(words)


def write_merges(folder: Path) -> int:
    Tokenizer.train(TEXTS[:200], kind="byte_bpe", vocab_size=300).export_hf(
        folder, model_max_length=9
    )
    (folder / "tokenizer.json").unlink()
    return 300


def write_pieces(folder: Path) -> int:
    Tokenizer.train(TEXTS[:300], kind="unigram", vocab_size=300).save(folder)
    (folder / "plmctl_tokenizer.json").unlink()
    (folder / "sentencepiece.model").rename(folder / "spiece.model")
    return 300


def write_json(folder: Path) -> int:
    Tokenizer.train(TEXTS[:300], kind="bpe", vocab_size=300).export_hf(folder, model_max_length=9)
    return 300


WRITERS: tuple[Callable[[Path], int], ...] = (write_vocab, write_merges, write_pieces, write_json)


def add_listed(folder: Path, ids: list[int]) -> None:
    listed = dict(zip(MARKS, ids, strict=True))
    (folder / "added_tokens.json").write_text(json.dumps(listed), encoding="utf-8")
    file = folder / "special_tokens_map.json"
    file.write_text(json.dumps({"additional_special_tokens": [MARKS[0]]}), encoding="utf-8")


def add_decoder(folder: Path, ids: list[int]) -> None:
    file = folder / "tokenizer_config.json"
    config = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    flags = {"lstrip": False, "rstrip": False, "single_word": False, "normalized": False}
    config["added_tokens_decoder"] = {
        str(number): {"content": mark, "special": number % 2 == 0, **flags}
        for mark, number in zip(MARKS, ids, strict=True)
    }
    file.write_text(json.dumps(config), encoding="utf-8")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("add", [add_listed, add_decoder])
@pytest.mark.parametrize("gap", [0, 5])
@pytest.mark.parametrize("write", WRITERS)
def test_added_tokens_have_their_ids(
    tmp_path: Path, write: Callable[[Path], int], add: Callable[..., None], gap: int
) -> None:
    size = write(tmp_path)
    plain = Tokenizer.load(tmp_path)
    ids = [size, size + 1 + gap]
    add(tmp_path, ids)
    tokenizer = Tokenizer.load(tmp_path)
    assert tokenizer.kind == plain.kind
    assert tokenizer.vocab.size == size + 2 + gap
    found = tokenizer.encode(TEXT)
    assert [number for number in found if number >= size] == ids
    assert not tokenizer.vocab.special[found].any()
    for text in ("the cat saw the dog .", "[SEP] a"):
        assert tokenizer.encode(text) == plain.encode(text)
    tokens, spans = tokenizer.encode_offsets(TEXT)
    assert [TEXT[a:b] for n, (a, b) in zip(tokens, spans, strict=True) if n in ids] == [*MARKS]
    tokenizer.save(tmp_path / "saved")
    tokenizer.export_hf(tmp_path / "hf", model_max_length=9)
    for folder in ("saved", "hf"):
        again = Tokenizer.load(tmp_path / folder)
        assert again.encode(TEXT) == found
        assert again.vocab.size == tokenizer.vocab.size
    more, _ = tokenizer.extend(["the saw dogcat " * 30] * 5, tokens=1, least=2)
    assert [number for number in more.encode(TEXT) if number in ids] == ids


@pytest.mark.parity
def test_added_tokens_as_the_program_reads_them_that_wrote_them(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    write_vocab(tmp_path)
    published = transformers.BertTokenizer(str(tmp_path / "vocab.txt"))
    published.add_tokens(["NEW", "<e1>"])
    published.add_special_tokens({"extra_special_tokens": ["<e2>"]})
    published.save_pretrained(tmp_path / "whole")
    texts = ["the cat NEW saw <e1>the dog <e2> .", "<e2> <e1> new cat<e2>"]
    loaded = Tokenizer.load(tmp_path / "whole")
    assert loaded.encode_batch(texts) == [
        published.encode(text, add_special_tokens=False) for text in texts
    ]
    assert loaded.vocab.size == len(published)


def test_a_role_may_be_added_and_is_never_text(tmp_path: Path) -> None:
    size = write_merges(tmp_path)
    (tmp_path / "added_tokens.json").write_text(f'{{"<m>": {size}, "<k>": {size + 1}}}')
    file = tmp_path / "tokenizer_config.json"
    config = json.loads(file.read_text(encoding="utf-8")) | {"mask_token": "<m>"}
    file.write_text(json.dumps(config), encoding="utf-8")
    tokenizer = Tokenizer.load(tmp_path)
    assert tokenizer.vocab.mask == size
    assert tokenizer.encode("a<m>b<k>").count(size) == 0
    assert tokenizer.encode("a<m>b<k>").count(size + 1) == 1


@pytest.mark.parametrize(
    ("added", "message"),
    [
        ({"<e1>": 5}, r"its added token '<e1>' has id 5, and '.*' too"),
        ({"[PAD]": 30}, r"its added token '\[PAD\]' has id 30"),
        ({"<e1>": 30, "<e2>": 30}, r"'<e1>' and '<e2>' have the same id, 30"),
        ({"<e1>": 10**9}, r"ids up to 1000000000"),
        ({"<e1>": -4}, r"'<e1>' must be 0 or more"),
    ],
)
@pytest.mark.parametrize("write", [write_vocab, write_pieces])
def test_ids_that_cannot_be(
    tmp_path: Path, write: Callable[[Path], int], added: dict[str, int], message: str
) -> None:
    write(tmp_path)
    (tmp_path / "added_tokens.json").write_text(json.dumps(added), encoding="utf-8")
    with pytest.raises(DataError, match=message):
        Tokenizer.load(tmp_path)


SPOKEN = [
    f"the {one} is {other} in a model of [sep] tokens{one}, and {other}{one}"
    for one in ("[SEP]", "[MASK]", "<sep>", "<cls>", "<eod>", "<extra_id_0>", "[unused0]", "</s>")
    for other in ("[PAD]", "[CLS]", "[UNK]", "<pad>", "<mask>", "<extra_id_1>", "<|endoftext|>")
]
MADE: dict[str, dict[str, Any]] = {
    name: numbers | {"vocab_size": 500, "sentinels": 2, "unused": 1}
    for name, numbers in KINDS.items()
} | {"word of spaces": {"vocab_size": 500, "punctuation": False, "sentinels": 2}}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", MADE)
def test_no_text_gives_a_special_token(tmp_path: Path, name: str) -> None:
    kind = name.split()[0]
    texts = [*SPOKEN * 4, *TEXTS[:200]]
    tokenizer = Tokenizer.train(texts, kind=kind, **MADE[name])
    tokenizer.save(tmp_path / "saved")
    tokenizer.export_hf(tmp_path / "hf", model_max_length=9)
    for each in (tokenizer, *map(Tokenizer.load, (tmp_path / "saved", tmp_path / "hf"))):
        special, roles = each.vocab.special, each.roles.tokens
        for text in [*SPOKEN, *roles, *(f"x{role}y" for role in roles), "\uffff[SEP]"]:
            ids, spans = each.encode_offsets(text)
            assert not special[ids].any()
            assert ids == each.encode(text)
            assert all(0 <= a <= b <= len(text) for a, b in spans)


def spec_of(kind: str) -> tokenizers.Tokenizer:
    """Tokenizers in which the model itself would find a special token in a text."""
    specials = ["[PAD]", "[UNK]", "[SEP]", "[CLS]", "mask", "|"]
    letters = [*"abcdeklmsuxSEP[]"]
    ids = {token: n for n, token in enumerate([*specials, *letters, "[S", "EP]"])}
    made = {
        "unigram": lambda: models.Unigram(
            [(token, -float(n) if n > 5 else 0.0) for token, n in ids.items()], 1, False
        ),
        "pieces": lambda: models.WordPiece(
            ids | {f"##{letter}": 100 + n for n, letter in enumerate(letters)}, unk_token="[UNK]"
        ),
        "words": lambda: models.WordLevel(ids, unk_token="[UNK]"),
        "merges": lambda: models.BPE(
            ids, [("[", "S"), ("E", "P"), ("EP", "]"), ("[S", "EP]")][:1], unk_token="[UNK]"
        ),
        "whole": lambda: models.BPE(ids, [], unk_token="[UNK]", ignore_merges=True),
    }
    tokenizer = tokenizers.Tokenizer(made[kind]())
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.add_special_tokens(specials[:3])
    return tokenizer


@pytest.mark.parametrize("kind", ["unigram", "pieces", "words", "merges", "whole"])
def test_no_text_gives_a_special_token_of_a_given_file(tmp_path: Path, kind: str) -> None:
    spec_of(kind).save(str(tmp_path / "tokenizer.json"))
    config = {
        "pad_token": "[PAD]",
        "unk_token": "[UNK]",
        "cls_token": "[CLS]",
        "mask_token": "mask",
    }
    config |= {"sep_token": "|"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    tokenizer = Tokenizer.load(tmp_path)
    tokenizer.save(tmp_path / "saved")
    for each in (tokenizer, Tokenizer.load(tmp_path / "saved")):
        special = each.vocab.special
        assert special.sum() == 5  # of [PAD], [SEP], [CLS], mask and |
        for text in ("[SEP]", "a [CLS] b", "mask", "| b|", "x[SEP] ||", "［ＳＥＰ］", "[PAD]mask"):
            assert not special[each.encode(text)].any(), text
        assert each.encode("a b") == [6, 7]


def test_a_symbol_of_the_user_with_a_role_is_never_text(tmp_path: Path) -> None:
    import sentencepiece

    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS[:300]),
        model_prefix=str(tmp_path / "spiece"),
        vocab_size=300,
        pad_id=3,
        user_defined_symbols=["<sep>", "<mark>"],
        minloglevel=2,
    )
    (tmp_path / "spiece.vocab").unlink()
    (tmp_path / "tokenizer_config.json").write_text('{"pad_token": "<pad>", "sep_token": "<sep>"}')
    tokenizer = Tokenizer.load(tmp_path)
    ids = tokenizer.encode("the <sep> and the <mark>")
    assert not tokenizer.vocab.special[ids].any()
    assert tokenizer.vocab.sep not in ids
    assert "<mark>" in tokenizer.pieces(ids)
    tokenizer.save(tmp_path / "saved")
    assert Tokenizer.load(tmp_path / "saved").encode("the <sep> and the <mark>") == ids


@pytest.mark.parametrize("file", ["special_tokens_map.json", "tokenizer_config.json"])
@pytest.mark.parametrize("role", [{}, {"cls_token": "[CLS]"}, {"mask_token": "[MASK]"}])
@pytest.mark.parametrize("add", [False, True])
def test_named_tokens_without_an_id_take_the_next_ones(
    tmp_path: Path, file: str, role: dict[str, str], add: bool
) -> None:
    size = write_vocab(tmp_path)
    if add:
        (tmp_path / "added_tokens.json").write_text(f'{{"<E 2>": {size}}}', encoding="utf-8")
    named = {"additional_special_tokens": ["<E 2>", "the", {"content": "<e1>"}], **role}
    (tmp_path / file).write_text(json.dumps(named), encoding="utf-8")
    tokenizer = Tokenizer.load(tmp_path)
    assert tokenizer.vocab.size == size + 2
    assert [n for n in tokenizer.encode(TEXT) if n >= size] == [size + 1, size]
    assert (tokenizer.vocab.cls, tokenizer.vocab.sep, tokenizer.vocab.mask) == (2, 3, 4)


@pytest.mark.parity
def test_named_tokens_have_the_ids_that_their_library_gives_them(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    write_vocab(tmp_path)
    named = {"tokenizer_class": "BertTokenizer", "additional_special_tokens": ["<e2>", "<e1>"]}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(named), encoding="utf-8")
    published = transformers.AutoTokenizer.from_pretrained(tmp_path)
    text = "the cat <e1> saw <e2>the dog"
    loaded = Tokenizer.load(tmp_path)
    assert loaded.encode(text) == published.encode(text, add_special_tokens=False)
