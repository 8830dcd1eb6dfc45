"""The bytes of tokens are compared with their manifest when they are first opened, and when a
file has changed since.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from plmctl.config.compose import compose
from plmctl.config.texts import Texts
from plmctl.core.errors import DataError
from plmctl.data.shards import Shards
from plmctl.data.verified import FOLDER, verify_once
from plmctl.inputs.corpus import open_corpus


@pytest.fixture
def tokens(tokens_of: Callable[..., Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(tokens_of("wordpiece"), tmp_path / "tokens"))


def flip(file: Path) -> None:
    """One bit of the last byte; the size stays."""
    with file.open("r+b") as stream:
        stream.seek(-1, os.SEEK_END)
        byte = stream.read(1)[0]
        stream.seek(-1, os.SEEK_END)
        stream.write(bytes([byte ^ 1]))


def test_a_flipped_bit_is_refused_before_training(tokens: Path, tmp_path: Path) -> None:
    cfg = compose(
        "pretrain", "gpt", [f"data.path={tokens}", f"data.cache_dir={tmp_path / 'cache'}"]
    )
    open_corpus(Texts.of(cfg))
    flip(tokens / "valid.ids.npy")
    with pytest.raises(
        DataError,
        match=(r"valid\.ids\.npy: its content has changed: sha256 (?s:.*)fix: # tokenize the text"),
    ):
        open_corpus(Texts.of(cfg))
    flip(tokens / "valid.ids.npy")  # as it was
    open_corpus(Texts.of(cfg))


def test_what_has_passed_is_not_read_again(
    tokens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    verify = Shards.verify

    def counted(shards: Shards) -> None:
        read.append(shards.split)
        verify(shards)

    monkeypatch.setattr(Shards, "verify", counted)
    for _ in range(2):
        for split in ("train", "valid"):
            verify_once(Shards.open(tokens, split), tmp_path / "cache")
    assert read == ["train", "valid"]
    flip(tokens / "train.sentences.npy")
    flip(tokens / "train.sentences.npy")  # the same bytes, written anew
    verify_once(Shards.open(tokens), tmp_path / "cache")
    assert read == ["train", "valid", "train"]
    shutil.rmtree(tmp_path / "cache" / FOLDER)
    (tmp_path / "cache" / FOLDER).touch()  # no folder can be made here
    verify_once(Shards.open(tokens), tmp_path / "cache")
    assert read == ["train", "valid", "train", "train"]
