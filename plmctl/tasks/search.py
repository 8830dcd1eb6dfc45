"""The nearest of many vectors, by exact products or by an index of FAISS, and the best texts by
BM25.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from plmctl.core.extras import require_library
from plmctl.tasks.retrieval import Retriever
from plmctl.tasks.scores.ranking import order_ties, take_best
from plmctl.tasks.short_vectors import (
    count_unlike,
    find_ranges,
    pack_signs,
    restore_bytes,
    restore_signs,
    round_to_bytes,
)

Index = Literal["exact", "faiss", "int8", "binary"]
CHUNK = 1 << 24  # products in memory at the same time
RESCORED = 4  # candidates by their bits for each document that is wanted


@dataclass(frozen=True)
class Ranked:
    """The best documents for a question, by number, and their scores, best first."""

    numbers: np.ndarray
    scores: np.ndarray


def search_vectors(
    queries: np.ndarray,
    documents: np.ndarray,
    names: Sequence[str],
    *,
    top: int,
    index: Index = "exact",
) -> Iterator[Ranked]:
    """For each of `queries [q, W]` the `top` rows of `documents [n, W]` with the largest product;
    of equal ones as trec_eval orders `names`.

    With `index="int8"` documents have a byte a number, with `"binary"` a bit. `RESCORED` times as
    many are then found by the Hamming distance of the signs, and ordered by the product of question
    and signs (Yamada et al., 2021, arXiv:2106.00882, sec. 3.2).

    Raises:
        UsageError: with `index="faiss"` where the library is not installed.
    """
    top, places = min(top, len(documents)), order_ties(names)
    if index == "faiss":
        yield from _search_faiss(queries, documents, places, top)
        return
    if index == "binary":
        yield from _search_bits(queries, documents, places, top)
        return
    if index == "int8":
        ranges = find_ranges(documents)
        documents = restore_bytes(round_to_bytes(documents, ranges), ranges)
    size = max(1, CHUNK // max(1, len(documents)))
    for start in range(0, len(queries), size):
        for scores in queries[start : start + size] @ documents.T:
            best = take_best(scores, places, top)
            yield Ranked(best, scores[best])


def _search_faiss(
    queries: np.ndarray, documents: np.ndarray, places: np.ndarray, top: int
) -> Iterator[Ranked]:
    """By a flat index of inner products; of equal products at the end of a ranking, FAISS
    chooses.
    """
    library = require_library("faiss", "faiss", "task.index=faiss", otherwise="task.index=exact")
    flat = library.IndexFlatIP(documents.shape[1])
    flat.add(np.ascontiguousarray(documents, np.float32))
    found = flat.search(np.ascontiguousarray(queries, np.float32), top)
    for scores, numbers in zip(*found, strict=True):
        order = np.lexsort((places[numbers], -scores))
        yield Ranked(numbers[order], scores[order])


def _search_bits(
    queries: np.ndarray, documents: np.ndarray, places: np.ndarray, top: int
) -> Iterator[Ranked]:
    codes, width = pack_signs(documents), documents.shape[1]
    for query, code in zip(queries, pack_signs(queries), strict=True):
        near = take_best(-count_unlike(code, codes), places, min(RESCORED * top, len(codes)))
        scores = restore_signs(codes[near], width) @ query
        best = take_best(scores, places[near], top)
        yield Ranked(near[best], scores[best])


def search_words(
    queries: Sequence[str], corpus: Mapping[str, str], *, top: int
) -> Iterator[Ranked]:
    """For each question the `top` texts of a corpus {id: text} by BM25 (k1 0.9, b 0.4)."""
    retriever, places = Retriever([*corpus.values()]), order_ties([*corpus])
    top = min(top, len(corpus))
    for query in queries:
        scores = retriever.score(query)
        best = take_best(scores, places, top)
        yield Ranked(best, scores[best])
