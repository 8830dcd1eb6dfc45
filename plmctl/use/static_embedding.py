"""`plmctl embed` with a file of word vectors instead of a model: bags of vectors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from plmctl.knowledge.vector_files import read_static
from plmctl.text.letters import compose

_EDGES = ".,;:!?\"'()[]{}<>«»“”‘’„…"  # of a word, where it has no vector with them


class AveragedLines(NamedTuple):
    """Vectors of lines, and how many of their words have one."""

    arrays: Iterator[tuple[str, np.ndarray]]  # (name, array) of every line, as .npz files have them
    words: int
    covered: int
    width: int


def average_words(texts: Sequence[str], file: Path, *, normalize: bool) -> AveragedLines:
    """The mean of the vectors of the words of each text; zeros for one without any.

    A word is what is between two spaces, as written, in lower case, or without marks at its ends;
    n-grams make the vector of a word that has none.

    Args:
        file: the vectors of words.
        normalize: whether means get length 1.
    """
    lines = [compose(text).split() for text in texts]
    words = {word for line in lines for word in line}
    bare = {word.strip(_EDGES) for word in words}
    read = read_static(file, among={*words, *bare, *map(str.lower, words), *map(str.lower, bare)})
    found: dict[str, np.ndarray] = {}
    for word in words:
        inner = word.strip(_EDGES)
        forms = (word, word.lower(), inner, inner.lower())
        known = next((form for form in forms if form in read.number), inner or word)
        if (vector := read.find(known)) is not None:
            found[word] = vector

    def arrays() -> Iterator[tuple[str, np.ndarray]]:
        for number, line in enumerate(lines):
            rows = [found[word] for word in line if word in found]
            mean = np.mean(rows, 0) if rows else np.zeros(read.width, np.float32)
            size = float(np.linalg.norm(mean)) if normalize else 1.0
            yield f"hidden_{number}", (mean / (size or 1.0)).astype(np.float32)[None]

    covered = sum(word in found for line in lines for word in line)
    return AveragedLines(arrays(), sum(map(len, lines)), covered, read.width)
