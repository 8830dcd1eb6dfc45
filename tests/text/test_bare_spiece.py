"""A published folder with nothing but `spiece.model`: ids, roles and rows are those of the
family's own code.
"""

from __future__ import annotations

import io
import json
import random
import shlex
import sys
import unicodedata
from pathlib import Path
from typing import Any

import pytest
import sentencepiece

from plmctl.core.errors import DataError
from plmctl.tasks.layouts import encode
from plmctl.text.tokenizer import Tokenizer

WORDS = [
    "the",
    "a",
    "cat",
    "dog",
    "river",
    "été",
    "café",
    "naïve",
    "Zürich",
    "straße",
    "Number",
    "1,000",
    "25,",
    "said",
    "running",
    "Ünder",
    "élan",
    "history",
    "of",
    "Rome",
]
TEXTS = [
    " ".join(random.Random(n).choices(WORDS, k=9))
    + random.Random(n).choice([".", " ``yes''", " (no)"])
    for n in range(400)
]
ODD = [
    "CAFÉ in Zürich",
    "it cost 1,000, or 25,  said the  dog",
    "``élan'' vital",
    "ﬁne naïve été",
    "中文 and the cat",
]
KINDS: dict[str, dict[str, Any]] = {
    "albert": {
        "pad_id": 0,
        "unk_id": 1,
        "bos_id": -1,
        "eos_id": -1,
        "control_symbols": ["[CLS]", "[SEP]", "[MASK]"],
    },
    "xlnet": {
        "unk_id": 0,
        "bos_id": 1,
        "eos_id": 2,
        "pad_id": -1,
        "user_defined_symbols": ["<eop>"],
        "control_symbols": ["<cls>", "<sep>", "<pad>", "<mask>", "<eod>"],
    },
}


def preprocessed(text: str, *, lower: bool) -> str:
    """`preprocess_text` of both published codes."""
    text = " ".join(text.split()).replace("``", '"').replace("''", '"')
    text = "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
    return text.lower() if lower else text


def pieces(model: Any, text: str) -> list[str]:
    """`encode_pieces`: a piece that ends in a digit and a comma is segmented again without it."""
    found: list[str] = []
    for piece in model.encode(text, out_type=str):
        if len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit():
            inner = model.encode(piece[:-1].replace("▁", ""), out_type=str)
            if piece[0] != "▁" and inner[0][0] == "▁":
                inner = inner[1:] if len(inner[0]) == 1 else [inner[0][1:], *inner[1:]]
            found += [*inner, ","]
        else:
            found.append(piece)
    return found


@pytest.fixture(scope="module", params=["albert", "xlnet"])
def folder(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Path]:
    place, model = tmp_path_factory.mktemp(request.param), io.BytesIO()
    sample = [preprocessed(text, lower=request.param == "albert") for text in TEXTS]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sample),
        model_writer=model,
        model_type="unigram",
        vocab_size=130,
        num_threads=1,
        minloglevel=2,
        hard_vocab_limit=False,
        **KINDS[request.param],
    )
    (place / "spiece.model").write_bytes(model.getvalue())
    (place / "config.json").write_text(json.dumps({"model_type": request.param}))
    return request.param, place


def test_pieces_are_those_of_the_published_code(folder: tuple[str, Path], tmp_path: Path) -> None:
    name, place = folder
    model = sentencepiece.SentencePieceProcessor(model_file=str(place / "spiece.model"))
    wanted = [pieces(model, preprocessed(text, lower=name == "albert")) for text in [*ODD, *TEXTS]]
    found = Tokenizer.load(place)
    assert [[model.piece_to_id(piece) for piece in text] for text in wanted] == found.encode_batch(
        [*ODD, *TEXTS]
    )
    assert found.vocab.unk not in found.encode("CAFÉ" if name == "albert" else "café")
    found.save(tmp_path / "saved")
    found.export_hf(tmp_path / "hf", model_max_length=64)
    for again in ("saved", "hf"):
        assert Tokenizer.load(tmp_path / again).encode_batch(ODD) == found.encode_batch(ODD)


def test_offsets_are_places_of_the_text_as_it_was(folder: tuple[str, Path]) -> None:
    found = Tokenizer.load(folder[1])
    text = "the Café of  Zürich"
    ids, spans = found.encode_offsets(text)
    assert ids == found.encode(text)
    assert "".join(
        dict.fromkeys(text[start:end] for start, end in spans if end > start)
    ).startswith("the")
    assert max(end for _, end in spans) == len(text)


def test_roles_and_rows(folder: tuple[str, Path]) -> None:
    name, place = folder
    vocab = Tokenizer.load(place).vocab
    laid = [
        encode.lay_out([20, 21], b, vocab, max_length=16, pooling="first") for b in (None, [30])
    ]
    rows = encode.pad(laid, vocab, example=[0, 1])
    ids, segment = rows.seqs["text"].ids.tolist(), rows.seqs["text"].tracks["segment"].tolist()
    if name == "albert":
        assert (vocab.pad, vocab.unk, vocab.cls, vocab.sep, vocab.mask) == (0, 1, 2, 3, 4)
        assert ids == [[2, 20, 21, 3, 0, 0], [2, 20, 21, 3, 30, 3]]
        assert segment[1] == [0, 0, 0, 0, 1, 1]
    else:
        assert (vocab.unk, vocab.bos, vocab.eos, vocab.cls, vocab.sep, vocab.pad, vocab.mask) == (
            0,
            1,
            2,
            3,
            4,
            5,
            6,
        )
        assert ids == [[20, 21, 4, 3, 5, 5], [20, 21, 4, 30, 4, 3]]
        assert [segment[0][:4], segment[1]] == [[0, 0, 0, 2], [0, 0, 0, 1, 1, 2]]


def test_a_cased_albert_says_so(folder: tuple[str, Path], tmp_path: Path) -> None:
    name, place = folder
    (tmp_path / "spiece.model").write_bytes((place / "spiece.model").read_bytes())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": name == "xlnet"}))
    model = sentencepiece.SentencePieceProcessor(model_file=str(place / "spiece.model"))
    text = "The River of Rome"
    wanted = [
        model.piece_to_id(piece)
        for piece in pieces(model, preprocessed(text, lower=name == "xlnet"))
    ]
    assert Tokenizer.load(tmp_path).encode(text) == wanted


def test_t5_has_its_sentinels_by_its_config(tmp_path: Path) -> None:
    Tokenizer.train(TEXTS, kind="unigram", vocab_size=60).save(tmp_path)
    (tmp_path / "plmctl_tokenizer.json").unlink()
    (tmp_path / "sentencepiece.model").rename(tmp_path / "spiece.model")
    size = Tokenizer.load(tmp_path).vocab.size
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "t5"}))
    assert Tokenizer.load(tmp_path).vocab.sentinels == tuple(range(size + 99, size - 1, -1))


def publish_deberta(folder: Path, **config: object) -> sentencepiece.SentencePieceProcessor:
    """DeBERTa 3 as it is published: spm.model without [MASK], and no tokenizer.json."""
    roles = {"pad": "[PAD]", "bos": "[CLS]", "eos": "[SEP]", "unk": "[UNK]"}
    options: dict[str, Any] = {f"{role}_piece": piece for role, piece in roles.items()}
    options |= {f"{role}_id": number for number, role in enumerate(roles)}
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS), model_writer=written, vocab_size=60, minloglevel=2, **options
    )
    (folder / "spm.model").write_bytes(written.getvalue())
    (folder / "config.json").write_text(json.dumps({"model_type": "deberta-v2"}))
    stated = {"do_lower_case": False, "vocab_type": "spm", **config}
    (folder / "tokenizer_config.json").write_text(json.dumps(stated))
    return sentencepiece.SentencePieceProcessor(model_proto=written.getvalue())


@pytest.mark.parametrize("config", [{}, {"mask_token": "[MASK]"}, {"mask_token": "<hidden>"}])
def test_deberta_has_its_mask_behind_the_last_piece(
    tmp_path: Path, config: dict[str, object]
) -> None:
    model = publish_deberta(tmp_path, **config)
    tokenizer = Tokenizer.load(tmp_path)
    vocab = tokenizer.vocab
    assert (vocab.pad, vocab.cls, vocab.sep, vocab.unk) == (0, 1, 2, 3)
    assert (vocab.mask, vocab.size) == (60, 61)
    for text in [*TEXTS[:50], *ODD]:
        assert tokenizer.encode(text) == model.encode(text)
    mask = str(config.get("mask_token", "[MASK]"))
    theirs = pytest.importorskip("transformers").AutoTokenizer.from_pretrained(tmp_path)
    assert theirs.convert_tokens_to_ids(mask) == vocab.mask


@pytest.mark.parametrize("setting", ["do_lower_case", "split_by_punct"])
def test_deberta_whose_code_changes_text_says_how_to_write_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    publish_deberta(tmp_path, **{setting: True})
    with pytest.raises(DataError, match=r"needs its tokenizer\.json") as caught:
        Tokenizer.load(tmp_path)
    command = shlex.split(str(caught.value).partition("fix: ")[2])
    transformers = pytest.importorskip("transformers")
    assert command[:2] == ["python", "-c"]
    monkeypatch.setattr(sys, "argv", ["-c", *command[3:]])
    exec(command[2], {})
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text in TEXTS[:20]:
        wanted = theirs(text, add_special_tokens=False)["input_ids"]
        assert Tokenizer.load(tmp_path).encode(text) == wanted
