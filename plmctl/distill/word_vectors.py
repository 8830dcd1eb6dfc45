"""Vectors for words that are to become tokens of a model, and two controls."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from plmctl.core.parts import base_of, part_of
from plmctl.knowledge.contexts import Context
from plmctl.models.base import Model
from plmctl.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class WordsToAdd:
    """Words and what is known of them.

    Args:
        words: in the order of their vectors.
        contexts: The most contexts of each word that has any.
    """

    words: tuple[str, ...]
    contexts: Mapping[str, Sequence[Context]]


@base_of("word_vectors")
class WordVectors:
    """Makes vectors that fit into the table of tokens of a model."""

    def names(self) -> tuple[str, ...] | None:
        """The words that it has vectors of, where nobody lists any; None: it needs a list."""
        return None

    def check_heads(self, heads: Collection[str]) -> None:
        """Raise ConfigError for a model that lacks a head which it reads."""

    def check(self, wanted: WordsToAdd) -> None:
        """Raise DataError for words of which it can make no vector, before any are made."""

    def make(self, model: Model, tokenizer: Tokenizer, wanted: WordsToAdd) -> Tensor:
        """[n, d] a vector for each word, in evaluation mode and without gradients of the caller.

        Args:
            model: The model, on its device.
            tokenizer: its tokenizer.
            wanted: the words.
        """
        raise NotImplementedError(type(self).__name__)


def table_of(model: Model, tokenizer: Tokenizer) -> Tensor:
    """[V, d] the vectors of the tokens, without spare rows."""
    weight = model.backbone.token_embedding.weight
    assert isinstance(weight, Tensor)
    return weight.detach()[: tokenizer.vocab.size]


@part_of("word_vectors")
class PieceMean(WordVectors):
    """`(1 / m) sum_i e_i` over the m pieces of a word: what the model knows already, as a
    control.
    """

    def make(self, model: Model, tokenizer: Tokenizer, wanted: WordsToAdd) -> Tensor:
        table = table_of(model, tokenizer)
        return torch.stack([table[tokenizer.encode(word)].mean(0) for word in wanted.words])


@part_of("word_vectors")
@dataclass(frozen=True, kw_only=True)
class RandomVectors(WordVectors):
    """`~ N(mean, spread)` of each column of the table of tokens, as a control.

    Args:
        seed: The seed of the draws.
    """

    seed: int

    def make(self, model: Model, tokenizer: Tokenizer, wanted: WordsToAdd) -> Tensor:
        table = table_of(model, tokenizer)
        generator = torch.Generator().manual_seed(self.seed)
        drawn = torch.randn(len(wanted.words), table.shape[1], generator=generator)
        return drawn.to(table) * table.std(0) + table.mean(0)
