"""A published folder with nothing but `spiece.model`: ids, roles and rows are those of the
family's own code.
"""

from __future__ import annotations

import io
import json
import random
import unicodedata
from pathlib import Path
from typing import Any

import pytest
import sentencepiece

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
