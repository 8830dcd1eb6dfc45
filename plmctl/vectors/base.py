"""What makes static vectors of words."""

from __future__ import annotations

from collections.abc import Callable

from plmctl.core.parts import base_of
from plmctl.knowledge.static_vectors import StaticVectors
from plmctl.vectors.corpus import WordCorpus

Show = Callable[[int], None]  # told how many words of the text have been read


@base_of("method")
class VectorMethod:
    """Learns a vector for each frequent word of a text."""

    epochs: int

    def learn(self, corpus: WordCorpus, *, width: int, seed: int, show: Show) -> StaticVectors:
        """The vectors of all words.

        Args:
            corpus: the text.
            width: numbers of a vector, D.
            seed: of what is drawn.
            show: is told how many words of the text, over all epochs, have been read.
        """
        raise NotImplementedError(type(self).__name__)
