"""The words nearest to a word by their vectors (Pennington et al., 2014), from a text file."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np

from plmctl.core.errors import AbsentData, DataError

# words that are read; GloVe's files have the frequent ones first (TinyBERT, data_augmentation.py)
LIMIT = 100_000
_TOGETHER = 64  # words that are compared at the same time


def confirm(file: str | None) -> None:
    """Raise AbsentData for a file of vectors that is not there; None names none."""
    if file is not None and not Path(file).expanduser().is_file():
        fix = "text of a word and its numbers in each line, as GloVe's .txt files"
        raise AbsentData("there is no such file of word vectors", file=file, fix=fix)


class Neighbours:
    """`vectors` [N, D] of `words`; the nearest words have the largest cosine."""

    def __init__(self, words: Sequence[str], vectors: np.ndarray) -> None:
        self.words = list(words)
        self.number = {word: number for number, word in reversed(list(enumerate(self.words)))}
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        self.vectors = vectors / np.where(norms > 0, norms, 1)

    @classmethod
    def read(
        cls, file: Path, limit: int = LIMIT, among: Collection[str] | None = None
    ) -> Neighbours:
        """Read lines `word x1 ... xD`; a first line of two numbers (count and D) is skipped.

        Args:
            file: text, as GloVe's files.
            limit: words that are read at most.
            among: the words that are kept; None: all.

        Raises:
            DataError: for a line of another form.
        """
        return cls(*read_table(file, limit, among))

    def find_nearest(self, words: Sequence[str], count: int) -> dict[str, list[str]]:
        """{word: the `count` nearest other words}, for words with a vector, as written or in lower
        case; neighbours of a capitalised word are capitalised.
        """
        numbers = {
            word: number
            for word in words
            if (number := self.number.get(word, self.number.get(word.lower()))) is not None
        }
        nearest: dict[str, list[str]] = {}
        known = list(numbers)
        for start in range(0, len(known), _TOGETHER):
            some = known[start : start + _TOGETHER]
            own = [numbers[word] for word in some]
            alike = self.vectors[own] @ self.vectors.T  # [n, N]
            alike[np.arange(len(own)), own] = -np.inf
            for word, order in zip(
                some, np.argsort(-alike, axis=1, kind="stable")[:, :count], strict=True
            ):
                others = [self.words[number] for number in order if number != numbers[word]]
                nearest[word] = [other.title() for other in others] if word.istitle() else others
        return nearest


def read_table(
    file: Path, limit: int = LIMIT, among: Collection[str] | None = None
) -> tuple[list[str], np.ndarray]:
    """Words and their vectors [N, D], as `Neighbours.read` reads them."""
    words, rows = list[str](), list[np.ndarray]()
    try:
        with file.open(encoding="utf-8") as stream:
            for number, line in enumerate(stream, 1):
                word, *cells = line.rstrip().split(" ")
                if number == 1 and len(cells) == 1:
                    continue
                if len(rows) == limit:
                    break
                if among is not None and word not in among:
                    continue
                rows.append(_vector(cells, len(rows[0]) if rows else len(cells), file, number))
                words.append(word)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", error)
        raise DataError(
            f"cannot be read: {reason}", file=file, fix="vectors=<text, as GloVe's .txt files>"
        ) from None
    if not rows and among is None:
        raise DataError(
            "there are no vectors in it", file=file, fix="lines of a word and its numbers"
        )
    return words, np.stack(rows) if rows else np.zeros((0, 1), np.float32)


def _vector(cells: list[str], width: int, file: Path, line: int) -> np.ndarray:
    try:
        vector = np.array(cells, dtype=np.float32)
    except ValueError:
        vector = np.zeros(0, np.float32)
    if not len(vector) or len(vector) != width:
        raise DataError(
            f"a word and {width or 'its'} numbers are needed, separated by spaces",
            file=file,
            line=line,
        )
    return vector
