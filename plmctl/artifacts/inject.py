"""Tokens of whole words for a model, with vectors from elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from plmctl.artifacts.added_tokens import write_with_tokens
from plmctl.artifacts.assemble import longest
from plmctl.artifacts.loading import Loaded, Source, open_source
from plmctl.config.build import build
from plmctl.core.errors import ConfigError
from plmctl.distill.word_vectors import WordsToAdd, WordVectors, table_of
from plmctl.interop.family import find_token_tables
from plmctl.knowledge.contexts import read_contexts
from plmctl.knowledge.words import WordCounts
from plmctl.text.tokenizer import Tokenizer

OF_RUN = ("mimic",)  # heads that make vectors, and nothing else


def open_target(into: str, loaded: Loaded, *, checkpoint: str) -> Source:
    """The model that gets the tokens; ConfigError for one whose tokens are others.

    Args:
        into: its path.
        loaded: the model that makes the vectors, opened from `checkpoint`.
    """
    target = open_source(into, plugins=loaded.source.plugins)
    width = table_of(loaded.model, loaded.tokenizer).shape[1]
    rows = find_token_tables(target.tensors)
    same = target.tokenizer.fingerprint == loaded.tokenizer.fingerprint
    if not same or not rows or rows[0].shape[1] != width:
        allowed = f"a model with the tokens and the width of {checkpoint}"
        raise ConfigError("into", into, allowed, fix="into=null")
    return target


def build_maker(node: Any, config: Mapping[str, Any], plugins: Sequence[str]) -> WordVectors:
    """The part that makes vectors for the rows of the model of `config`; ConfigError where it
    cannot read such a model.
    """
    rows = config.get("format") or {}
    given = {
        "mode": rows.get("mode", "add"),
        "max_length": int(rows.get("max_length") or longest(config) or 128),
    }
    maker: WordVectors = build(node, given, plugins, path="word_vectors")
    maker.check_heads(config.get("heads") or {})
    return maker


def read_words(words: str | None, maker: WordVectors) -> WordsToAdd:
    """The words of a folder of contexts or of a table, with their contexts; for None, the words
    of `maker`.
    """
    if words is None:
        names = maker.names()
        if names is None:
            fix = "words=<folder of plmctl data contexts>"
            raise ConfigError("words", None, "which words become tokens?", fix=fix)
        return WordsToAdd(names, {})
    table = WordCounts.read(words)
    place = Path(words).expanduser()
    folder = place if place.is_dir() else place.parent
    return WordsToAdd(table.spellings, read_contexts(folder, table))


def write_words(source: Source, tokenizer: Tokenizer, vectors: Tensor, out: Path) -> None:
    """Write a model whose tokenizer has new tokens with these vectors, [n, W]; heads that make
    vectors are left out.
    """
    write_with_tokens(_without_makers(source), tokenizer, partial(_fill_rows, vectors), out)


def _without_makers(source: Source) -> Source:
    """A model without heads that make vectors."""
    heads = source.config.get("heads") or {}
    config = {**source.config, "heads": {n: node for n, node in heads.items() if n not in OF_RUN}}
    kept = tuple(f"heads.{name}." for name in OF_RUN)
    tensors = {name: x for name, x in source.tensors.items() if not name.startswith(kept)}
    return replace(source, config=config, tensors=tensors)


def _fill_rows(vectors: Tensor, table: Tensor, rows: slice) -> None:
    """Set the rows of the new tokens. A table as wide as the vectors gets them; one with a number
    for each token, a bias, gets its smallest number.
    """
    if table.dim() == 1:
        table[rows] = table[: rows.start].min()
    elif table.dim() == 2 and table.shape[1] == vectors.shape[1]:
        table[rows] = vectors.to(table)
