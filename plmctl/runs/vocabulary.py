"""The size of the vocabulary that a text yields, before its tokens exist."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from plmctl.core.errors import PlmctlError
from plmctl.data.tokenizing import choose_training_texts
from plmctl.inputs.tokenize import find_sources
from plmctl.text.document import Document
from plmctl.text.recipe import Recipe, TooLittleText
from plmctl.text.tokenizer import Tokenizer

# characters of a text that are read; a tokenizer is trained on all of a shorter one
SHORT = 1 << 19
USUAL = 64  # characters that yield one more token, or fewer

_yields: dict[tuple[str, str], int] = {}  # {(recipe, hash of the text): tokens that it yields}


def find_size(recipe: Recipe, data: dict[str, Any]) -> int:
    """The tokens that a text yields, `recipe.vocab_size` at most.

    For that a tokenizer is trained on texts of at most SHORT characters.

    Args:
        data: The settings of the text.
    """
    path, several = data["path"], data["mixture"] or data["sources"]
    if several or path is None or str(path).startswith("hf:") or recipe.path is not None:
        return recipe.vocab_size
    try:
        source, _ = find_sources(data, path)
        beginning = FirstTexts(source.documents())
        texts = list(choose_training_texts(beginning, replace(recipe, sample_bytes=SHORT)))
        enough = sum(map(len, texts)) >= recipe.vocab_size * USUAL
        if enough or not beginning.is_all:
            return recipe.vocab_size
        return _count_yield(texts, recipe)
    except (PlmctlError, OSError):  # the run itself reports what is wrong with its text
        return recipe.vocab_size


def _count_yield(texts: list[str], recipe: Recipe) -> int:
    """The tokens that these texts yield, `recipe.vocab_size` at most; once for equal ones."""
    key = repr(recipe), hashlib.sha256("\n".join(texts).encode(errors="replace")).hexdigest()
    if key not in _yields:
        try:
            _yields[key] = Tokenizer.learn(texts, recipe).vocab.size
        except TooLittleText as error:
            _yields[key] = error.size
    return _yields[key]


class FirstTexts:
    """Documents, and whether all of them have been read."""

    def __init__(self, documents: Iterator[Document]) -> None:
        self.documents, self.is_all = documents, False

    def __iter__(self) -> Iterator[Document]:
        yield from self.documents
        self.is_all = True
