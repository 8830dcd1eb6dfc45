"""WordCandidates that lie near a word among word vectors (Jin et al., 2020)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from plmctl.attack.base import Place, WordCandidates
from plmctl.core.parts import part_of
from plmctl.distill.word_vectors import table_of
from plmctl.knowledge.word_vectors import Neighbours
from plmctl.models.base import Model
from plmctl.tasks.readers import files
from plmctl.text.letters import is_word
from plmctl.text.tokenizer import Tokenizer


@part_of("attack_candidates")
class NearWords(WordCandidates):
    """The `count` nearest words whose cosine is `least` or more (Jin et al., 2020,
    arXiv:1907.11932, sec. 3.1: 50 of counter-fitted vectors, 0.7).

    Args:
        count: The number of candidates of a word.
        least: The least cosine.
        vectors: A file of word vectors; None: the model's own vectors of complete words.
        model: The model to attack.
        tokenizer: its own.
    """

    def __init__(
        self,
        *,
        count: int,
        least: float,
        model: Model,
        tokenizer: Tokenizer,
        vectors: str | None = None,
    ) -> None:
        self.count, self.least = count, least
        self.table = (
            find_own_words(model, tokenizer)
            if vectors is None
            else Neighbours.read(Path(files.existing(vectors)))
        )
        self.known: dict[str, list[str]] = {}

    def propose(self, places: Sequence[Place]) -> list[list[str]]:
        words = [text.word(number) for text, number in places]
        new = [word for word in dict.fromkeys(words) if word not in self.known]
        nearest = self.table.find_nearest(new, self.count)
        for word in new:
            self.known[word] = [other for other in nearest.get(word, []) if self._fits(word, other)]
        return [self.known[word] for word in words]

    def _fits(self, word: str, other: str) -> bool:
        a, b = (self._vector(each) for each in (word, other))
        return other.lower() != word.lower() and float(a @ b) >= self.least

    def _vector(self, word: str) -> np.ndarray:
        """The vector of the word as it is written, else in lower case."""
        number = self.table.number
        vector: np.ndarray = self.table.unit[number.get(word, number.get(word.lower(), 0))]
        return vector


def find_own_words(model: Model, tokenizer: Tokenizer) -> Neighbours:
    """The vectors that a model has of tokens that are complete words."""
    vocab = tokenizer.vocab
    table = table_of(model, tokenizer).float().cpu().numpy()
    words, rows = [], []
    for number in range(vocab.size):
        if vocab.word_start[number] and not vocab.special[number]:
            word = tokenizer.decode([number]).strip()
            if is_word(word) and list(tokenizer.encode(word)) == [number]:
                words.append(word)
                rows.append(number)
    return Neighbours(words, table[rows])
