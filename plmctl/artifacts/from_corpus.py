"""First weights that the corpus decides: frequencies and neighbours of tokens, and n-grams."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import torch
from torch import nn

from plmctl.data.sample import sample_corpora
from plmctl.heads.lm import LMHead
from plmctl.inputs.corpus import Corpus
from plmctl.nn.first_vectors import FirstVectors
from plmctl.nn.ngram_lexicon import NgramLexicon
from plmctl.nn.tables import TokenTable
from plmctl.text.frequencies import measure_frequencies
from plmctl.text.tokenizer import Tokenizer

PIECES = 4096  # pieces of 4,096 tokens each: neighbours are counted in so much text


def start_from_corpus(
    modules: Sequence[nn.Module],
    corpus: Corpus,
    first_vectors: FirstVectors | None,
    *,
    say: Callable[[str], None] = lambda line: None,
) -> None:
    """Give the frequencies of tokens to every head that needs them, and start every table of tokens
    from `first_vectors`, also those of helpers.
    """
    parts = dict.fromkeys(part for module in modules for part in module.modules())
    texts = [shards for corpora in corpus.train.values() for shards in corpora.values()]
    heads = [part for part in parts if isinstance(part, LMHead) and part.prior]
    if heads:
        frequencies = measure_frequencies(sample_corpora(texts), corpus.vocab.size)
        for head in heads:
            head.start_from(torch.from_numpy(frequencies))
    if first_vectors:
        ids = np.zeros(0, np.int64)
        if first_vectors.counts:
            ids = sample_corpora(texts, pieces=PIECES)
            say(f"token vectors start from the neighbours of {len(ids) / 1e6:.2g} M tokens")
        start_tables(modules, first_vectors, corpus.tokenizer, ids)


def learn_lexicons(
    module: nn.Module, corpus: Corpus, *, say: Callable[[str], None] = lambda line: None
) -> None:
    """Let every lexicon of n-grams that is empty learn from the text; others are of the model that
    a run begins with.
    """
    empty = [part for part in module.modules() if isinstance(part, NgramLexicon) and not part.known]
    if not empty:
        return
    texts = [shards for corpora in corpus.train.values() for shards in corpora.values()]
    ids = sample_corpora(texts, pieces=PIECES)
    for lexicon in empty:
        lexicon.learn(ids, corpus.vocab.special)
        said = f"the lexicon has {lexicon.known:,} n-grams of {len(ids) / 1e6:.2g} M tokens"
        few = f" (none stands there {lexicon.often} times: a lower model.lexicon.often finds some)"
        say(said + ("" if lexicon.known else few))


def describe_empty_lexicons(module: nn.Module) -> Iterator[str]:
    """A line where a model without pretraining has a lexicon of n-grams, which no text fills."""
    if any(isinstance(part, NgramLexicon) and not part.known for part in module.modules()):
        yield (
            "the lexicon of n-grams is empty, so the model reads none: pretraining learns it"
            " (plmctl pretrain zen data.path=<text>), then checkpoint=<its run>"
        )


def start_tables(
    modules: Iterable[nn.Module], first_vectors: FirstVectors, tokenizer: Tokenizer, ids: np.ndarray
) -> None:
    """Start every table of tokens in these modules."""
    parts = dict.fromkeys(part for module in modules for part in module.modules())
    pieces = tokenizer.pieces(range(tokenizer.vocab.size))
    for table in (part for part in parts if isinstance(part, TokenTable)):
        first_vectors.start(table, ids, tokenizer.vocab.special, pieces)
