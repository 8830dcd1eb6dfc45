"""RoFormer's tokenizer against `transformers`: the same ids in ten scripts, there and back."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from plmctl.core.errors import UsageError
from plmctl.text import whole_words
from plmctl.text.tokenizer import Tokenizer

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.parity

WORDS = ["今天", "天气", "非常", "今天天气", "好", "北京大学", "北京", "hello", "caf", "naive"]
SCRIPTS = [
    "今天天气非常好。北京大学",
    "Hello, World! naïve café U.S. 3.14% can't",
    "Привет, мир! Ёлка",
    "Ελληνικά Σίσυφος ΣΑΣ",
    "שלום עולם",
    "مرحبا بالعالم",
    "हिन्दी भाषा",
    "ไทยภาษา",
    "한국어 문장",
    "ひらがなカタカナ漢字",
    "İstanbul ẞtraße ﬁn\u0301 e\u0301\u0327",
    "a\tb\n c\x00d [MASK]x   今 天 \u200b😀",
]


def tokenize(text: str, hmm: bool = True) -> list[tuple[str, int, int]]:
    """A stand-in for rjieba: the longest of `WORDS`, letters and digits together, signs alone."""
    found, start = [], 0
    while start < len(text):
        ends = [start + len(w) for w in WORDS if text.startswith(w, start)]
        end = max(ends, default=start + 1)
        if not ends and text[start].isascii() and text[start].isalnum():
            while end < len(text) and text[end].isascii() and text[end].isalnum():
                end += 1
        found.append((text[start:end], start, end))
        start = end
    return found


@pytest.fixture
def cutter(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The library itself where it is installed, or the stand-in."""
    whole_words._rjieba.cache_clear()
    try:
        import rjieba  # noqa: F401
    except ImportError:
        monkeypatch.setitem(sys.modules, "rjieba", SimpleNamespace(tokenize=tokenize))
    yield
    whole_words._rjieba.cache_clear()


def vocabulary() -> list[str]:
    letters = sorted({c for text in SCRIPTS for c in text.lower() if not c.isspace()})
    pieces = [f"##{c}" for c in letters if not "一" <= c <= "鿿"]
    known = [c for c in letters if c not in "學漢"]
    return ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *known, *pieces, *WORDS[:-2], "##llo"]


def publish(folder: Path, **settings: object) -> object:
    folder.mkdir()
    tokens = list(dict.fromkeys(vocabulary()))
    numbers = {token: number for number, token in enumerate(tokens)}
    theirs = transformers.RoFormerTokenizer(vocab=numbers, **settings)
    theirs.save_pretrained(folder)
    return theirs


@pytest.mark.parametrize("settings", [{}, {"do_lower_case": False}, {"strip_accents": False}])
def test_ids_in_ten_scripts(settings: dict[str, bool], cutter: None, tmp_path: Path) -> None:
    theirs = publish(tmp_path / "theirs", **settings)
    ours = Tokenizer.load(tmp_path / "theirs")
    draw = random.Random(0)
    letters = [c for text in SCRIPTS[:-1] for c in text]
    mixed = ["".join(draw.choices(letters, k=draw.randint(1, 30))) for _ in range(300)]
    for text in [*SCRIPTS[:-1], *mixed]:
        wanted = theirs(text, add_special_tokens=False).input_ids
        assert ours.encode(text) == wanted, text
    # there and back: our own folder, and a published one again
    ours.save(tmp_path / "own")
    Tokenizer.load(tmp_path / "own").export_hf(tmp_path / "again", model_max_length=64)
    again = transformers.RoFormerTokenizer.from_pretrained(tmp_path / "again")
    for text in SCRIPTS[:-1]:
        assert again(text).input_ids == theirs(text).input_ids


def test_offsets_are_those_of_the_text(cutter: None, tmp_path: Path) -> None:
    publish(tmp_path / "theirs")
    ours = Tokenizer.load(tmp_path / "theirs")
    for text in SCRIPTS:
        ids, spans = ours._backend.encode_offsets(text)
        assert len(ids) == len(spans)
        for number, (start, end) in zip(ids, spans, strict=True):
            token = ours._backend.tokens[number].removeprefix("##")
            assert 0 <= start <= end <= len(text)
            if token != "[UNK]" and text[start:end].isascii():
                assert text[start:end].lower().strip() == token


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "rjieba", SimpleNamespace(tokenize=tokenize))
    publish(tmp_path / "theirs")
    whole_words._rjieba.cache_clear()
    monkeypatch.setitem(sys.modules, "rjieba", None)
    with pytest.raises(UsageError, match=r"needs rjieba\n  fix: pip install .*rjieba"):
        Tokenizer.load(tmp_path / "theirs")
