"""The size of the vocabulary that a pretraining has, before its tokens exist."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from plmctl.config.build import build, plain
from plmctl.config.texts import sources
from plmctl.core.errors import PlmctlError
from plmctl.data.located import locate
from plmctl.data.shards import is_tokens
from plmctl.data.tokenizing import choose_training_texts
from plmctl.inputs.tokenize import find_sources
from plmctl.text.document import Document
from plmctl.text.recipe import Recipe, TooLittleText
from plmctl.text.tokenizer import Tokenizer
from plmctl.text.vocab import Vocab

SHORT = 1 << 19  # characters of a text of which a tokenizer is trained for its size alone
USUAL = 64  # characters that yield one more token, or fewer

_yields: dict[tuple[str, str], int] = {}  # {(recipe, hash of the text): tokens that it yields}


def known_vocabulary(spec: Any) -> Vocab | None:
    """The vocabulary that a pretraining run would have, if there is one already."""
    known = [spec.tokenizer.get("path"), spec.init]
    known += [
        part.get("path") for node in sources(spec).values() for part in node["corpora"].values()
    ]
    for path in known:
        if path and (path is known[0] or is_tokens(path)):
            return Tokenizer.load(locate(path)).vocab
    return None


def vocabulary_size(spec: Any, known: Vocab | None = None) -> int:
    """The size of the vocabulary that a pretraining run would have at most: that of a `known`
    one, else `tokenizer.vocab_size`.
    """
    if (known := known or known_vocabulary(spec)) is not None:
        return known.size
    recipe: Any = build(spec.tokenizer, {}, spec.plugins, path="tokenizer")
    return int(recipe.vocab_size)


def count_vocabulary(spec: Any) -> int:
    """As `vocabulary_size`, and fewer tokens where a short text yields no more. For that a
    tokenizer is trained on texts of at most SHORT characters.
    """
    if (known := known_vocabulary(spec)) is not None:
        return known.size
    recipe: Recipe = build(spec.tokenizer, {}, spec.plugins, path="tokenizer")
    data = plain(spec.data)
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
