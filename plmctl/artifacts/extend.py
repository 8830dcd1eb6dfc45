"""Tokens of the words of another text for a model, which continue what it knows of their pieces."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from torch import Tensor

from plmctl.artifacts.adapter_base import refuse_methods
from plmctl.artifacts.added_tokens import write_with_tokens
from plmctl.artifacts.loading import Source, open_source
from plmctl.config.build import plain
from plmctl.config.groups import Data
from plmctl.core.errors import ConfigError
from plmctl.core.progress import show_bytes
from plmctl.core.spelling import spell_setting
from plmctl.data.shards import is_tokens
from plmctl.data.survey import survey_text
from plmctl.inputs.tokenize import find_sources
from plmctl.interop.family import find_token_tables
from plmctl.tasks.record import cut
from plmctl.text.tokenizer import Tokenizer


def open_growable(checkpoint: str, plugins: Sequence[str] = ()) -> Source:
    """ConfigError for a model to whose tables no rows can be added."""
    source = open_source(checkpoint, plugins=plugins)
    refuse_methods(source, "checkpoint")
    if len(find_token_tables(source.tensors)) != 1:
        allowed = "a model with one table of tokens, a row for each"
        raise ConfigError("checkpoint", checkpoint, allowed, fix="another model")
    return source


def read_sample(data: Data, sample_bytes: int) -> list[str]:
    """The sample that tokens are learned from: no document that is held out."""
    stated, path = plain(data), plain(data.path)
    if is_tokens(path):
        raise ConfigError("data.path", path, "holds tokens; give the text they were made from")
    source, valid = find_sources(stated, path)
    with show_bytes() as say:
        share = 0 if valid else data.valid_share
        survey = survey_text(source, valid_share=share, sample_bytes=sample_bytes, say=say)
    return [sentence for document in survey.sample for sentence in document.sentences]


def write_extended(
    source: Source, tokenizer: Tokenizer, out: Path, *, pieces: Sequence[Sequence[int]] | None
) -> None:
    """Write the model for a tokenizer that has new tokens.

    Args:
        pieces: the old tokens that make up each new one, whose row is the mean of theirs; None:
            rows are drawn as in a new model.
    """
    fill = _keep_drawn if pieces is None else partial(_fill_with_means, pieces)
    write_with_tokens(source, tokenizer, fill, out)


def _fill_with_means(pieces: Sequence[Sequence[int]], table: Tensor, rows: slice) -> None:
    """The row of a new token is the mean of the rows of its pieces, in every table. So are its
    vector, and its logit wherever it is predicted.
    """
    for number, parts in enumerate(pieces, rows.start):
        table[number] = table[list(parts)].float().mean(0).to(table)


def _keep_drawn(table: Tensor, rows: slice) -> None:
    """Leave the rows as a new model draws them."""


def describe_unknown_words(words: Counter[str], out: str) -> list[str]:
    """The words that stay unknown to the model `out`, and the setting that makes tokens of those
    with letters.
    """
    if not words:
        return []
    shown = " ".join(cut(word, 20) for word, _ in words.most_common(8))
    which = "word of it stays" if len(words) == 1 else "words of it stay"
    lines = [
        f"{len(words):,} {which} unknown, {words.total():,} times in all, such as {shown}:"
        " new tokens are made of tokens that the tokenizer has"
    ]
    if any(map(str.isalnum, "".join(words))):  # a sign is no word
        fix = f"  fix: plmctl inject {spell_setting('checkpoint', out)} word_vectors=random"
        lines.append(
            f"{fix} form=replace words=WORDS.tsv out=FOLDER  # a file: word, tab, how often"
        )
    return lines
