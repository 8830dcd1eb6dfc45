"""`plmctl data polarity`: the words of a text with their polarity in it (Ke et al., 2020,
SentiLARE). It follows from the senses of SentiWordNet and the similarity of their glosses to the
sentence.

`out` has a JSON line for each document: its text, the marks `polarity` (1 negative, 2 positive) and
`pos` (1 noun, 2 verb, 3 adjective, 4 adverb) of its words, and those of `data.tags`. Words that
have a mark in `data.tags=[pos]`, as a tagger gives it, have senses of that part of speech alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any

import numpy as np

from plmctl.artifacts.loading import Loaded
from plmctl.knowledge.glosses import GlossedSense, GlossSimilarity, choose_polarity, find_senses
from plmctl.knowledge.sentiment import POLARITIES, WordPolarity
from plmctl.knowledge.words import plain_words
from plmctl.tasks.sparse_linear import WeightedCounts
from plmctl.text.document import Document
from plmctl.text.function_words import ENGLISH
from plmctl.text.letters import compose
from plmctl.text.marks import count_characters
from plmctl.training.device.precision import choose
from plmctl.training.processes.world import device_of
from plmctl.use.sentence_vectors import choose_pooling, embed_texts

TOGETHER = 32  # documents whose sentences and glosses an encoder reads at once
Marks = dict[str, list[dict[str, int]]]


class WordCosines:
    """Cosines of weighted counts of words, tf (1 + ln((1 + N) / (1 + df))), N the glosses.

    Differs: in the paper of sentence-BERT's vectors.
    """

    def __init__(self, glosses: Sequence[str]) -> None:
        self.counts = WeightedCounts([self._split(gloss) for gloss in glosses])
        self.weigh = lru_cache(maxsize=1 << 16)(self._weigh)

    def read(self, texts: Iterable[str]) -> None:
        """There is nothing to prepare."""

    def compare(self, sentence: str, glosses: Sequence[str]) -> list[float]:
        own = self.weigh(sentence)
        return [
            sum(own.get(word, 0.0) * value for word, value in self.weigh(gloss).items())
            for gloss in glosses
        ]

    def _weigh(self, text: str) -> dict[int, float]:
        row = self.counts.rows([self._split(text)])
        return dict(zip(row.columns.tolist(), row.values.tolist(), strict=True))

    @staticmethod
    def _split(text: str) -> list[str]:
        return [compose(match[0].lower()) for match in plain_words().finditer(text)]


class VectorCosines:
    """Cosines of an encoder's vectors of texts: as it was trained to make them (sentence-BERT:
    Reimers and Gurevych, 2019, arXiv:1908.10084), else the means of its last states.
    """

    def __init__(self, loaded: Loaded, *, batch_size: int, device: str) -> None:
        self.loaded, self.batch_size = loaded, batch_size
        self.pooling = choose_pooling(loaded, None, path="checkpoint")
        self.precision = choose("fp32", device_of(device, "device"))
        loaded.model.to(self.precision.device)
        self.known: dict[str, np.ndarray] = {}

    def read(self, texts: Iterable[str]) -> None:
        new = [text for text in dict.fromkeys(texts) if text not in self.known]
        if new:
            vectors = embed_texts(
                self.loaded,
                new,
                self.pooling,
                batch_size=self.batch_size,
                precision=self.precision,
                normalize=True,
            )
            self.known |= dict(zip(new, vectors, strict=True))

    def compare(self, sentence: str, glosses: Sequence[str]) -> list[float]:
        self.read([sentence, *glosses])
        return [float(self.known[sentence] @ self.known[gloss]) for gloss in glosses]


def mark_documents(
    documents: Iterable[Document],
    senses: dict[str, list[GlossedSense]],
    similarity: GlossSimilarity,
    counted: Counter[str],
) -> Iterator[dict[str, Any]]:
    """A row for each document.

    Args:
        documents: to be marked.
        senses: The senses of SentiWordNet.
        similarity: Compares sentences and glosses.
        counted: receives the numbers of words, of those with senses, and of each polarity.
    """
    stream = iter(documents)
    while block := list(islice(stream, TOGETHER)):
        asked = [list(_find_words(document, senses, counted)) for document in block]
        similarity.read(
            text for own in asked for word in own for text in (word[0], *(s.gloss for s in word[3]))
        )
        for document, words in zip(block, asked, strict=True):
            text, given = _restore(document)
            marks: Marks = {**given, "polarity": [], "pos": given.get("pos", [])}
            for sentence, start, end, own in words:
                entry = choose_polarity(own, similarity.compare(sentence, [s.gloss for s in own]))
                counted[POLARITIES[entry.polarity]] += 1
                _add(marks, start, end, entry, tagged="pos" in given)
            yield {"text": text, **marks}


def _add(marks: Marks, start: int, end: int, entry: WordPolarity, *, tagged: bool) -> None:
    where = {"start": start, "end": end}
    if entry.polarity:
        marks["polarity"].append({**where, "id": entry.polarity})
    if not tagged:
        marks["pos"].append({**where, "id": entry.part})


def _find_words(
    document: Document, senses: dict[str, list[GlossedSense]], counted: Counter[str]
) -> Iterator[tuple[str, int, int, list[GlossedSense]]]:
    """(its sentence, first character, the one behind the last, its senses) of each word with
    senses that is no function word.
    """
    text, given = _restore(document)
    parts = {mark["start"]: mark["id"] for mark in given.get("pos", ())}
    at = 0
    for segment in document.segments:
        sentence = segment.strip()
        at = text.index(sentence, at)
        for match in plain_words().finditer(sentence):
            counted["words"] += 1
            start, end = at + match.start(), at + match.end()
            if compose(match[0].lower()) in ENGLISH or ("pos" in given and start not in parts):
                continue
            own = find_senses(match[0], senses, parts.get(start, 0))
            if own:
                counted["known"] += 1
                yield sentence, start, end, own
        at += len(sentence)


def _restore(document: Document) -> tuple[str, Marks]:
    """The text of a document, and its marks in characters of this text."""
    text = "".join(document.segments)
    place = np.flatnonzero(np.diff(count_characters(text)))  # position of each visible character
    return text, {
        name: [
            {"start": int(place[start]), "end": int(place[end - 1]) + 1, "id": int(number)}
            for start, end, number in table.tolist()
        ]
        for name, table in document.marks.items()
    }
