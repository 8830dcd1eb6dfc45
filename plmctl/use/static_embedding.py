"""`plmctl embed` with a file of word vectors instead of a model: bags of vectors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from plmctl.core.errors import list_some
from plmctl.core.terminal import counted
from plmctl.data.words import describe_runs
from plmctl.knowledge.vector_files import read_static, refuse_uncovered
from plmctl.text.letters import compose
from plmctl.text.segment import Segmenter
from plmctl.text.segmented import space_words
from plmctl.vectors.corpus import SPLITS

# at the ends of a word, where it has no vector with them
_EDGES = ".,;:!?\"'()[]{}<>«»“”‘’„…—·，。、；：！？（）《》〈〉【】「」『』"
FEW = 0.5  # a smaller share of words with a vector gets a warning


class AveragedLines(NamedTuple):
    """Vectors of lines, and how many of their words have one."""

    arrays: Iterator[tuple[str, np.ndarray]]  # (name, array) of every line, as .npz files have them
    words: int
    covered: int
    width: int
    empty: list[int]  # numbers of lines without a vector, from 1; their vector is zero
    warnings: list[str]


def average_words(
    texts: Sequence[str], file: Path, *, normalize: bool, segment: Segmenter | None = None
) -> AveragedLines:
    """The mean of the vectors of the words of each text; zeros for one without any.

    A word is what is between two spaces, as written, in lower case, or without marks at its ends;
    n-grams make the vector of a word that has none. Marks alone are words only with a vector.

    Args:
        normalize: whether means get length 1.
        segment: Finds the words of Chinese texts; None: spaces alone are between words.

    Raises:
        DataError: No word of these texts has a vector.
    """
    spaced = texts if segment is None else [space_words(text, segment)[0] for text in texts]
    lines = [compose(text).split() for text in spaced]
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

    asked = sum(word in found or any(map(str.isalnum, word)) for line in lines for word in line)
    covered = sum(word in found for line in lines for word in line)
    fix = "vectors in the language of these lines"
    if segment is None and describe_runs(texts, SPLITS["spaces"]()):
        fix = "segment=jieba"
    refuse_uncovered(covered, asked, "words of these lines", file=file, fix=fix)
    empty = [n for n, line in enumerate(lines, 1) if not any(word in found for word in line)]
    warnings = [f"{covered / asked:.0%} of the words have a vector\n  fix: {fix}"]
    warnings = warnings if covered < FEW * asked else []
    if empty:
        has = f"{counted(len(empty), 'line')} without a vector, written as zeros"
        warnings.append(f"{has}: {list_some(empty)}")
    return AveragedLines(arrays(), asked, covered, read.width, empty, warnings)
