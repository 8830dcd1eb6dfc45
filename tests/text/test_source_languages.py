"""Sources of translation models name their language, as `transformers` lays them out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import sentencepiece

from plmctl.text.tokenizer import Tokenizer

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.parity

LINES = (
    "the old man reads a long book in the house",
    "der alte Mann liest ein langes Buch im Haus",
    "старик читает длинную книгу в доме",
    "老人在房子里读一本长书",
    "الرجل العجوز يقرأ كتابا طويلا في المنزل",
    "वह बूढ़ा आदमी घर में एक लंबी किताब पढ़ता है",
    "ο γέρος διαβάζει ένα μακρύ βιβλίο στο σπίτι",
    "הזקן קורא ספר ארוך בבית",
    "노인이 집에서 긴 책을 읽는다",
    "ชายชราอ่านหนังสือเล่มยาวในบ้าน",
)
CODES = ["eng_Latn", "fra_Latn", "deu_Latn"]
FAMILIES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "mBART": ("MBartTokenizer", "unigram", {"src_lang": "ro_RO"}),
    "mBART-50": ("MBart50Tokenizer", "unigram", {"src_lang": "uk_UA"}),
    "NLLB": ("NllbTokenizer", "bpe", {"src_lang": "fra_Latn", "extra_special_tokens": CODES}),
    "first NLLB": (
        "NllbTokenizer",
        "bpe",
        {"src_lang": "deu_Latn", "extra_special_tokens": CODES, "legacy_behaviour": True},
    ),
}


def train(file: Path, kind: str) -> None:
    """A sentencepiece model of a few lines."""
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES * 3),
        model_prefix=str(file.with_suffix("")),
        vocab_size=220,
        model_type=kind,
        hard_vocab_limit=False,
        minloglevel=2,
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_sources_name_their_language(family: str, tmp_path: Path) -> None:
    """The template has the language, which has no role, at its end or at the beginning."""
    kind, model, settings = FAMILIES[family]
    train(tmp_path / "sentencepiece.bpe.model", model)
    published = getattr(transformers, kind).from_pretrained(str(tmp_path), **settings)
    published.save_pretrained(tmp_path / "published")
    ours = Tokenizer.load(tmp_path / "published")
    ours.export_hf(tmp_path / "again", model_max_length=64, framed=True)
    ours.save(tmp_path / "saved")
    again = [Tokenizer.load(tmp_path / name) for name in ("again", "saved")]
    for tokenizer in (ours, *again):
        assert settings["src_lang"] in tokenizer.vocab.single
        for line in LINES:
            parts = {"A": tokenizer.encode(line)}
            framed = [parts.get(name) or [tokenizer.vocab.id(name)] for name in ours.vocab.single]
            assert [i for part in framed for i in part] == published(line)["input_ids"]


@pytest.mark.parametrize(("family", "other"), [("mBART", "de_DE"), ("NLLB", "deu_Latn")])
def test_the_language_of_the_settings_counts_before_the_template(
    family: str, other: str, tmp_path: Path
) -> None:
    kind, model, settings = FAMILIES[family]
    train(tmp_path / "sentencepiece.bpe.model", model)
    published = getattr(transformers, kind).from_pretrained(str(tmp_path), **settings)
    published.save_pretrained(tmp_path / "published")
    file = tmp_path / "published" / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"src_lang": other}))
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "published")
    ours = Tokenizer.load(tmp_path / "published").vocab
    for pair, row in ((ours.single, theirs("a")), (ours.pair, theirs("a", "b"))):
        named = [ours.id(name) for name in pair if name not in ("A", "B")]
        ids = [n for n, token in enumerate(ours.tokens) if token == other]
        assert ids == [n for n in named if n not in (ours.eos, ours.sep, ours.bos, ours.cls)]
        assert set(named) <= set(row["input_ids"])
