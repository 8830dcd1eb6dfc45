"""Tokenizer files that would end the process: refused in one sentence, in a process of their own;
what plmctl writes is not tried.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import models, normalizers, pre_tokenizers

from plmctl.core.errors import DataError
from plmctl.text import trial
from plmctl.text.tokenizer import Tokenizer
from plmctl.text.train import KINDS

WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b")
SIZES = {"byte_bpe": 270, "wordpiece": 60}
SEQUENCE: dict[str, Any] = {"type": "Sequence"}


def charsmap(content: bytes) -> dict[str, Any]:
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(content).decode()}


def write(folder: Path, **stages: Any) -> Path:
    made = tokenizers.Tokenizer(models.WordLevel({w: n for n, w in enumerate(WORDS)}, "[UNK]"))
    made.add_special_tokens(list(WORDS[:5]))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    (folder / "tokenizer.json").write_text(json.dumps({**json.loads(made.to_str()), **stages}))
    return folder


def replace(pattern: dict[str, str], content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": pattern, "content": content}


@pytest.mark.parametrize(
    ("stages", "said"),
    [
        ({"normalizer": charsmap(b"\xff\xff\xff\x7fabc")}, "ends the process that loads it"),
        ({"normalizer": charsmap((64).to_bytes(4, "little") + b"\xff" * 64)}, "out of bounds"),
        (
            {"normalizer": {**SEQUENCE, "normalizers": [replace({"String": "a"}, "a" * 9)] * 9}},
            "times as long",
        ),
        (
            {"normalizer": {**SEQUENCE, "normalizers": [replace({"Regex": "."}, "ab")] * 30}},
            "times as long",
        ),
        ({"normalizer": replace({"String": "\u2603"}, "x" * 9999)}, "times as long"),
        ({"normalizer": {"type": "Prepend", "prepend": "x" * 9999}}, "times as long"),
        (
            {
                "pre_tokenizer": {
                    "type": "Split",
                    "pattern": {"Regex": "(a+)+$b"},
                    "behavior": "Isolated",
                    "invert": False,
                }
            },
            "retry-limit",
        ),
    ],
)
def test_a_file_that_would_end_the_process(
    tmp_path: Path, stages: dict[str, Any], said: str
) -> None:
    with pytest.raises(DataError, match=f"tokenizer.json: not a tokenizer file .*{said}"):
        Tokenizer.load(write(tmp_path, **stages))


def test_a_name_that_is_spelled_otherwise_is_seen(tmp_path: Path) -> None:
    file = write(tmp_path, normalizer=charsmap(b"\xff\xff\xff\x7fabc")) / "tokenizer.json"
    file.write_text(file.read_text().replace('"Precompiled"', r'"Pre\u0063ompiled"'))
    with pytest.raises(DataError, match="ends the process"):
        Tokenizer.load(tmp_path)


def test_a_model_of_sentencepiece_is_tried_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "_run", lambda content, kind: f"{kind}: SIGABRT")
    (tmp_path / "spiece.model").write_bytes(b"\x0a\x05hello")
    with pytest.raises(DataError, match="model: SIGABRT"):
        Tokenizer.load(tmp_path)


def test_a_good_file_is_tried_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLMCTL_CACHE", str(tmp_path / "cache"))
    split = {"pattern": {"Regex": r"\d"}, "behavior": "Isolated", "invert": False}
    folder = write(tmp_path, pre_tokenizer={"type": "Split", **split})
    assert Tokenizer.load(folder).encode("a1b")
    monkeypatch.setattr(trial, "_run", lambda *given: "tried again")
    assert Tokenizer.load(folder).encode("a1b")
    with pytest.raises(DataError, match="tried again"):
        Tokenizer.load(write(tmp_path, pre_tokenizer={"type": "Split", **split, "invert": True}))


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_what_plmctl_writes_is_not_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(trial, "_run", lambda *given: "tried")
    letters = "abcdefghijklmnopqrstuvwxyz"
    text = [" ".join(letters[n : n + 4] + letters[n * 7 % 23 :][:3] for n in range(22))] * 20
    made = Tokenizer.train(text, kind=kind, vocab_size=SIZES.get(kind, 40))
    made.save(tmp_path)
    assert Tokenizer.load(tmp_path).encode("the cat") == made.encode("the cat")


def test_published_normalisers_pass(tmp_path: Path) -> None:
    made = tokenizers.Tokenizer(models.WordLevel({w: n for n, w in enumerate(WORDS)}, "[UNK]"))
    made.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁"), normalizers.NFKC()]
    )
    content = made.to_str().encode()
    trial.try_out(content, "tokenizer.json", kind="json")
    assert not trial._run(content, "json")
