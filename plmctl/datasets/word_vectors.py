"""Static vectors of words, taken out of a model."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from plmctl.artifacts.loading import Loaded
from plmctl.core.errors import ConfigError, DataError
from plmctl.knowledge.static_vectors import StaticVectors
from plmctl.probes.word_similarity import take_vectors
from plmctl.training.device.precision import Precision
from plmctl.vectors.corpus import WordCorpus
from plmctl.vectors.distilled import Distilled


def distil(
    loaded: Loaded,
    method: Distilled,
    corpus: WordCorpus,
    sentences: Iterable[str],
    *,
    width: int,
    batch_size: int,
    precision: Precision,
) -> StaticVectors:
    """The vectors of the most frequent words.

    Args:
        method: The layer and the number of words and contexts.
        corpus: The words with their counts.
        sentences: The contexts of the words.
        batch_size: The number of texts that the model reads at the same time.
        precision: The precision of the model.

    Raises:
        DataError: The model knows none of the words.
        ConfigError: It has fewer numbers than `width`.
    """
    loaded.model.to(precision.device).eval()
    words = corpus.words[: method.words]
    found = take_vectors(
        loaded,
        words,
        of=method.of,
        sentences=sentences,
        most=method.contexts,
        layer=method.layer,
        batch_size=batch_size,
        precision=precision,
    )
    kept = [n for n, word in enumerate(words) if word in found]
    if not kept:
        what = f"the model knows none of the {len(words):,} words of this text"
        raise DataError(what, fix="data.path=<text in its language>")
    table = np.stack([found[words[n]] for n in kept])
    if method.reduce and table.shape[1] < width:
        allowed = f"at most {table.shape[1]}, as many numbers as this model has"
        raise ConfigError("width", width, allowed, fix=f"width={table.shape[1]}")
    shares = corpus.counts[kept] / corpus.total
    return StaticVectors([words[n] for n in kept], method.finish(table, shares, width))
