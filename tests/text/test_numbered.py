"""Tokenizers of M2M-100, Marian and Blenderbot-small from the files of their authors, against
`transformers`.
"""

from __future__ import annotations

import functools
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import tokenizers
from tokenizers import models, pre_tokenizers, trainers

from plmctl.core.errors import DataError, UsageError
from plmctl.text.dialogue_words import DialogueWords
from plmctl.text.languages import M2M_100
from plmctl.text.tokenizer import Tokenizer
from tests.text.test_shifted import draw_texts

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.parity

TEXTS = draw_texts(1000, 5)
SIGNS = ["Don't!", "it's (not) so...", "a\nb 'c'\n", "Well,ok?no", "''", "I'm\n\nhere.\n", "İN a. "]


@functools.cache
def train_pieces(kind: str, seed: int, size: int = 900) -> bytes:
    """A sentencepiece model that lacks some of the letters."""
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(draw_texts(700, seed)),
        model_writer=out,
        vocab_size=size,
        model_type=kind,
        character_coverage=0.98,
        minloglevel=9,
    )
    return out.getvalue()


def list_pieces(model: bytes) -> list[str]:
    plain = sentencepiece.SentencePieceProcessor(model_proto=model)
    return [plain.id_to_piece(n) for n in range(3, plain.get_piece_size())]


def write_numbers(folder: Path, tokens: list[str]) -> dict[str, int]:
    numbers = {token: number for number, token in enumerate(dict.fromkeys(tokens))}
    folder.mkdir(exist_ok=True)
    (folder / "vocab.json").write_text(json.dumps(numbers), encoding="utf-8")
    return numbers


def publish_m2m(folder: Path) -> None:
    """Some pieces of the model have no number."""
    model = train_pieces("bpe", 0)
    pieces = [piece for n, piece in enumerate(list_pieces(model)) if n % 17]
    write_numbers(folder, ["<s>", "<pad>", "</s>", "<unk>", *pieces])
    (folder / "sentencepiece.bpe.model").write_bytes(model)


def publish_marian(folder: Path) -> None:
    """Each model lacks pieces of the other one, which have numbers."""
    two = [train_pieces("unigram", 1, 800), train_pieces("unigram", 2, 700)]
    pieces = [piece for model in two for piece in list_pieces(model)]
    write_numbers(folder, ["</s>", "<unk>", *pieces, ">>fra<<", ">>zh c<<", "<pad>"])
    for name, model in zip(("source.spm", "target.spm"), two, strict=True):
        (folder / name).write_bytes(model)


def publish_blenderbot(folder: Path) -> None:
    own = tokenizers.Tokenizer(models.BPE(unk_token="__unk__", end_of_word_suffix="</w>"))
    own.pre_tokenizer = pre_tokenizers.Whitespace()
    own.train_from_iterator(
        [text.lower() for text in [*TEXTS[:600], *SIGNS * 9]],
        trainers.BpeTrainer(vocab_size=1500, end_of_word_suffix="</w>", show_progress=False),
    )
    model = json.loads(own.to_str())["model"]
    lines = "".join(f"{left} {right}\n" for left, right in model["merges"])
    pieces = [t.removesuffix("</w>") if t.endswith("</w>") else f"{t}@@" for t in model["vocab"]]
    kept = [piece for n, piece in enumerate(pieces) if n % 17]
    write_numbers(folder, ["__null__", "__start__", "__end__", "__unk__", "__newln__", *kept])
    (folder / "merges.txt").write_text(f"#version: 0.2\n{lines}", encoding="utf-8")
    (folder / "config.json").write_text('{"model_type": "blenderbot-small"}', encoding="utf-8")


FAMILIES: dict[str, tuple[str, Callable[[Path], None]]] = {
    "m2m": ("M2M100Tokenizer", publish_m2m),
    "marian": ("MarianTokenizer", publish_marian),
    "blenderbot": ("BlenderbotSmallTokenizer", publish_blenderbot),
}


def frame(tokenizer: Tokenizer, ids: list[int], order: tuple[str, ...]) -> list[int]:
    parts = [ids if name == "A" else [tokenizer.vocab.id(name)] for name in order]
    return [number for part in parts for number in part]


@pytest.mark.parametrize("family", FAMILIES)
def test_ids_in_ten_scripts(family: str, tmp_path: Path) -> None:
    """There, saved by plmctl, and back as the published class reads them."""
    name, publish = FAMILIES[family]
    publish(tmp_path / "files")
    theirs = getattr(transformers, name).from_pretrained(tmp_path / "files")
    ours = Tokenizer.load(tmp_path / "files")
    texts = [*TEXTS, *SIGNS]
    wanted = theirs(texts, add_special_tokens=False)["input_ids"]
    assert ours.encode_batch(texts) == wanted
    unknown = sum(row.count(ours.vocab.unk) for row in wanted)
    assert 0 < unknown < sum(map(len, wanted)) / 2
    for text in texts[::9]:
        ids, spans = ours.encode_offsets(text)
        assert ids == ours.encode(text)
        assert all(0 <= start <= end <= len(text) for start, end in spans)
        assert frame(ours, ids, ours.vocab.single) == theirs(text)["input_ids"]
        assert ours.decode(ids).replace(" ", "") == theirs.decode(ids).replace(" ", "")
    ours.save(tmp_path / "saved")
    saved = Tokenizer.load(tmp_path / "saved")
    assert saved.fingerprint == ours.fingerprint
    assert saved.encode_batch(texts) == wanted
    assert saved.for_targets.encode_batch(texts) == ours.for_targets.encode_batch(texts)
    saved.export_hf(tmp_path / "out", model_max_length=64)
    again = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    assert type(again).__name__ == name
    assert again(texts)["input_ids"] == theirs(texts)["input_ids"]
    assert Tokenizer.load(tmp_path / "out").vocab.single == ours.vocab.single


def test_words_of_a_dialogue_by_hand() -> None:
    """The rules of the released code, one by one; "?" is a letter that no merge has."""
    words = DialogueWords("#version\nn o\no k</w>\n", ["no@@", "n@@", "t", "x", "'"])
    cut: dict[str, list[tuple[str, str]]] = {
        "NOT Ok": [("no@@", "NO"), ("t", "T"), ("ok", "Ok")],
        "x.no": [("x", "x"), ("?", "."), ("n@@", "n"), ("?", "o")],
        "x'x": [("x", "x"), ("'", "'"), ("x", "x")],
        "x'\n": [("x", "x"), ("'", "'")],
        "\nx": [("x", "x")],
        " x  x ": [("x", "x"), ("x", "x")],
    }
    for text, wanted in cut.items():
        pieces, spans = words.cut_pieces(text)
        named = [piece.replace("\uffff", "?") for piece in pieces]
        parts = [text[start:end] for start, end in spans]
        assert list(zip(named, parts, strict=True)) == wanted, text
    pieces, spans = words.cut_pieces("no\n")  # the end of a line is a word, __newln__
    assert len(pieces) == 2 + 9
    assert set(spans[2:]) == {(2, 3)}
    assert words.join(["no@@", "t", "ok"]) == "not ok"


def test_targets_of_marian_are_cut_by_their_own_model(tmp_path: Path) -> None:
    publish_marian(tmp_path)
    ours = Tokenizer.load(tmp_path)
    theirs = transformers.MarianTokenizer.from_pretrained(tmp_path)
    wanted = theirs(text_target=TEXTS, add_special_tokens=False)["input_ids"]
    assert ours.for_targets.encode_batch(TEXTS) == wanted
    assert wanted != theirs(TEXTS, add_special_tokens=False)["input_ids"]
    assert ours.for_targets.for_targets.encode_batch(TEXTS[:9]) == ours.encode_batch(TEXTS[:9])


def test_a_source_of_marian_begins_with_its_language(tmp_path: Path) -> None:
    publish_marian(tmp_path)
    ours = Tokenizer.load(tmp_path)
    theirs = transformers.MarianTokenizer.from_pretrained(tmp_path)
    for text in (">>fra<< az by", ">>zh c<<az", ">>none<< az", "az >>fra<< by", ">> az", ">><<"):
        assert ours.encode(text) == theirs(text, add_special_tokens=False)["input_ids"], text
    ids, spans = ours.encode_offsets(">>fra<< az")
    assert ours.pieces(ids)[0] == ">>fra<<"
    assert spans[0] == (0, 7)
    assert [">>fra<< az"[start:end] for start, end in spans[1:]] != []


def test_special_tokens_that_a_text_spells_are_unknown_or_letters(tmp_path: Path) -> None:
    for family, (_, publish) in FAMILIES.items():
        publish(tmp_path / family)
        ours = Tokenizer.load(tmp_path / family)
        special = [ours.vocab.id(role) for role in ("pad", "eos")]
        texts = ["a </s> b", "<pad>", "__en__", "__null__ __end__", "</s>"]
        assert not set(special) & {n for text in texts for n in ours.encode(text)}


@pytest.mark.parametrize(("source", "target"), [("de", "zh"), (None, None)])
def test_languages_of_m2m(source: str | None, target: str | None, tmp_path: Path) -> None:
    publish_m2m(tmp_path / "files")
    settings = {"src_lang": source, "tgt_lang": target}
    (tmp_path / "files" / "tokenizer_config.json").write_text(json.dumps(settings))
    theirs = transformers.M2M100Tokenizer.from_pretrained(tmp_path / "files")
    theirs.save_pretrained(tmp_path / "saved")
    for name in ("files", "saved"):
        ours = Tokenizer.load(tmp_path / name)
        assert ours.vocab.single == (f"__{source or 'en'}__", "A", "eos")
        assert ours.vocab.target == ((f"__{target}__", "A", "eos") if target else ())
        for code in M2M_100[::7]:
            assert ours.vocab.find(f"__{code}__") == theirs.get_lang_id(code)
        ours.export_hf(tmp_path / "out", model_max_length=64)
        again = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
        assert again(TEXTS[0])["input_ids"] == theirs(TEXTS[0])["input_ids"]
        if target:
            rows = (one(text_target=TEXTS[0])["input_ids"] for one in (again, theirs))
            assert next(rows) == next(rows)


def test_other_languages_have_no_published_class(tmp_path: Path) -> None:
    publish_m2m(tmp_path)
    count = len(json.loads((tmp_path / "vocab.json").read_text()))
    added = {"__en__": count, "__tlh__": count + 1}
    (tmp_path / "added_tokens.json").write_text(json.dumps(added))
    ours = Tokenizer.load(tmp_path)
    assert ours.vocab.size == count + 2
    with pytest.raises(UsageError, match="not these 2 languages"):
        ours.export_hf(tmp_path / "out", model_max_length=64)


@pytest.mark.parametrize(
    ("family", "change", "words"),
    [
        ("marian", lambda folder: (folder / "target.spm").unlink(), "missing: target.spm"),
        ("marian", lambda folder: (folder / "vocab.json").unlink(), "missing: vocab.json"),
        (
            "marian",
            lambda folder: (folder / "tokenizer_config.json").write_text(
                '{"separate_vocabs": true}'
            ),
            "a vocabulary of their own",
        ),
        ("m2m", lambda folder: (folder / "vocab.json").write_text('{"a": 0}'), "no <pad>, <unk>"),
    ],
)
def test_incomplete_folders_are_named(
    family: str, change: Callable[[Path], Any], words: str, tmp_path: Path
) -> None:
    FAMILIES[family][1](tmp_path / "files")
    change(tmp_path / "files")
    with pytest.raises(DataError, match=words):
        Tokenizer.load(tmp_path / "files")
