"""Tokenizers of XLM and FlauBERT from the files of their authors, against `transformers`."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tokenizers
from tokenizers import models, pre_tokenizers, trainers

from plmctl.core.errors import DataError, UsageError
from plmctl.text.annotate import choose_word_starts
from plmctl.text.tokenizer import Tokenizer
from tests.text.test_shifted import draw_texts

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.parity

PLAIN = [
    "L'été, M. Dupont est-il là ? Oui, à 3,5 km...",
    "Mr. Smith didn't pay $1,000.50 (or so).  Did he?",
    "Ţara şi România în Ăla",
    "İstanbul ẞtraße ﬁn e\u0301\u0327 Ångström",
    "``quoted'' text, “double” ‘single’ «guillemets» — and … –",
]
TEXTS = [
    *PLAIN,
    "全角，符号。 下一句：「引用」（１２）％ｘ．  y～",
    "a\tb\nc\x00d\u200b e\u00ad <s> </s> 😀 ",
]
TEXTS += draw_texts(150, 5)


class Words:
    """A stand-in for sacremoses: quotes made plain; words, numbers, and signs alone."""

    def __init__(self, lang: str) -> None:
        self.pattern = re.compile(r"[^\W\d_]+['’]?|\d+(?:[.,]\d+)*|\.\.\.|[^\w\s]|_" + f"|{lang}")

    def normalize(self, text: str) -> str:
        return re.sub(" +", " ", re.sub("[«»„]", '"', text)).strip()

    def tokenize(self, text: str, return_str: bool, escape: bool) -> list[str]:
        return self.pattern.findall(text)


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library itself where it is installed, or the stand-in."""
    try:
        import sacremoses  # noqa: F401
    except ImportError:
        own = SimpleNamespace(MosesTokenizer=Words, MosesPunctNormalizer=Words)
        monkeypatch.setitem(sys.modules, "sacremoses", own)


def publish(folder: Path, kind: str, config: dict[str, Any], model: dict[str, Any]) -> Any:
    """A folder of its authors with some pieces missing, and the tokenizer of `transformers`."""
    folder.mkdir()
    own = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    own.pre_tokenizer = pre_tokenizers.Whitespace()
    trainer = trainers.BpeTrainer(vocab_size=900, end_of_word_suffix="</w>", show_progress=False)
    texts = [*TEXTS * 3, *draw_texts(100, 5)]
    own.train_from_iterator([*texts, *(text.lower() for text in texts)], trainer)
    spec = json.loads(own.to_str())["model"]
    first = ["<s>", "</s>", "<pad>", "<unk>", *(f"<special{n}>" for n in range(10))]
    tokens = [*first, *(piece for n, piece in enumerate(spec["vocab"]) if n % 17)]
    numbers = {token: number for number, token in enumerate(dict.fromkeys(tokens))}
    (folder / "vocab.json").write_text(json.dumps(numbers), encoding="utf-8")
    lines = "".join(f"{left} {right} 12\n" for left, right in spec["merges"])
    (folder / "merges.txt").write_text(lines, encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    stated = json.dumps({"model_type": kind, **model})
    (folder / "config.json").write_text(stated, encoding="utf-8")
    name = {"xlm": "XLMTokenizer", "flaubert": "FlaubertTokenizer"}[kind]
    files = (str(folder / name) for name in ("vocab.json", "merges.txt"))
    return getattr(transformers, name)(*files, **config)


SPOKEN = {"lang2id": {"en": 0, "ro": 1}, "n_langs": 2}
CASES = {
    "xlm": ("xlm", {}, {"lang2id": {"en": 0}, "n_langs": 1}, {"lang": "en"}),
    "cased": ("xlm", {"do_lowercase_and_remove_accent": False}, {}, {"lang": "en"}),
    "romanian": ("xlm", {}, {**SPOKEN, "lang_id": 1}, {"lang": "ro"}),
    "no vectors": ("xlm", {}, {**SPOKEN, "lang_id": 1, "use_lang_emb": False}, {"lang": "en"}),
    "flaubert": ("flaubert", {}, {}, {}),
    "lower": ("flaubert", {"do_lowercase": True}, {}, {}),
}


@pytest.mark.parametrize("case", CASES)
def test_ids_and_files_are_equal(case: str, library: None, tmp_path: Path) -> None:
    kind, config, model, how = CASES[case]
    theirs = publish(tmp_path / "theirs", kind, config, model)
    ours = Tokenizer.load(tmp_path / "theirs")
    ours.save(tmp_path / "own")
    ours = Tokenizer.load(tmp_path / "own")
    for text in TEXTS:
        pieces = theirs._tokenize(text, **how)
        assert ours.encode(text) == theirs.convert_tokens_to_ids(pieces), text
    ids = ours.encode(PLAIN[0])
    if ours.vocab.unk not in ids:
        assert ours.decode(ids) == theirs.convert_tokens_to_string(ours.pieces(ids))
    pair = [ours.vocab.id(name) for name in ours.roles.pair if name not in ("A", "B")]
    assert pair == theirs.build_inputs_with_special_tokens([], [])
    assert (ours.roles.mask, ours.roles.cls) == (theirs.mask_token, theirs.cls_token)
    ours.export_hf(tmp_path / "again", model_max_length=64)
    again = type(theirs).from_pretrained(tmp_path / "again")
    assert [again(text).input_ids for text in PLAIN] == [theirs(text).input_ids for text in PLAIN]
    assert again.get_vocab() == theirs.get_vocab()


def test_offsets_and_words_are_those_of_the_text(library: None, tmp_path: Path) -> None:
    publish(tmp_path / "theirs", "xlm", {"do_lowercase_and_remove_accent": False}, {})
    ours = Tokenizer.load(tmp_path / "theirs")
    for text in TEXTS:
        ids, spans = ours.encode_offsets(text)
        assert ids == ours.encode(text)
        pieces = [piece.removesuffix("</w>") for piece in ours.pieces(ids)]
        last = 0
        for piece, (start, end) in zip(pieces, spans, strict=True):
            assert last <= start < end <= len(text), (text, piece)
            last = start
            if piece.isalnum() and text[start:end].isascii():
                assert text[start:end] == piece, text
    mark = choose_word_starts(ours, None)
    assert mark is not None
    text = "undefined words didn't"
    flat, lengths = ours.encode_flat([text, text])
    starts = mark([text, text], flat, lengths)
    ended = [True, *(piece.endswith("</w>") for piece in ours.pieces(flat)[:-1])]
    unknown = [False, *(flat[:-1] == ours.vocab.unk)]
    assert list(starts) == [a or b for a, b in zip(ended, unknown, strict=True)]


def test_what_is_missing_or_not_read_is_named(
    library: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    publish(tmp_path / "zh", "xlm", {}, {"lang2id": {"zh": 0}})
    with pytest.raises(DataError, match=r"text in zh is cut into words by other libraries"):
        Tokenizer.load(tmp_path / "zh")
    publish(tmp_path / "added", "flaubert", {}, {})
    (tmp_path / "added/added_tokens.json").write_text('{"Covid": 2000}', encoding="utf-8")
    with pytest.raises(DataError, match=r"adds 'Covid' to the words of its vocabulary"):
        Tokenizer.load(tmp_path / "added")
    (tmp_path / "added/added_tokens.json").unlink()
    monkeypatch.setitem(sys.modules, "sacremoses", None)
    with pytest.raises(UsageError, match=r"needs sacremoses\n  fix: pip install .*sacremoses"):
        Tokenizer.load(tmp_path / "added")
