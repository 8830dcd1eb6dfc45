"""Published models, each in a folder of the test's own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.interop.publishing import VOCAB, publish


@pytest.fixture
def published(tmp_path: Path) -> Callable[..., tuple[Any, Path]]:
    """`publish` into a folder of the test's own."""

    def make(name: str, folder: str = "published", **changes: Any) -> tuple[Any, Path]:
        return publish(tmp_path / folder, name, **changes)

    return make


@pytest.fixture
def with_tokenizer() -> Callable[[Path], Path]:
    """Put BERT's kind of vocabulary, exactly as large as the tiny models', into a published
    folder.
    """

    def add(folder: Path) -> Path:
        words = ["the", "cat", "sat", "on", "mat", "##s", "dog", "ran", ".", ","]
        tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
        tokens += [f"[unused{i}]" for i in range(VOCAB - len(tokens))]
        (folder / "vocab.txt").write_text(
            "".join(f"{token}\n" for token in tokens), encoding="utf-8"
        )
        return folder

    return add
