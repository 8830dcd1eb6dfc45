"""The base of methods that make static vectors of words."""

from __future__ import annotations

from collections.abc import Callable

from plmctl.core.parts import base_of
from plmctl.knowledge.static_vectors import StaticVectors
from plmctl.vectors.corpus import WordCorpus

Show = Callable[[int], None]  # receives the number of words of the text read so far


@base_of("method")
class VectorMethod:
    """Learns a vector for each frequent word of a text."""

    epochs: int

    def learn(self, corpus: WordCorpus, *, width: int, seed: int, show: Show) -> StaticVectors:
        """The vectors of all words.

        Args:
            corpus: the text.
            width: numbers of a vector, D.
            seed: The seed of the draws.
            show: A function that receives the number of words read so far, over all epochs.
        """
        raise NotImplementedError(type(self).__name__)
