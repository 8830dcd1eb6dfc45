"""`plmctl embed among=vectors.npz`: the lines of a file whose vectors are nearest to those of
questions.

A file that `plmctl embed` has written with one vector for each line also has

    made      how they were made, and the texts: JSON, as bytes
    weights   [V] what each token weighs, of poolings that weigh them
    ranges    [2, W] the least and largest number of each column, with numbers=int8
    empty     [e] lines without a text, from 0, with numbers=int8 and binary
    width     W, with numbers=binary and with sparse vectors

Sparse vectors have a weight for each token of the vocabulary (`pooling=splade`). Line i then has,
in the position of `hidden_<i>`, the numbers that are not 0:

    columns_<i>  [m] the numbers of their columns, rising
    values_<i>   [m] the numbers themselves

so that questions become vectors in the same way.
"""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from plmctl.artifacts.loading import Loaded
from plmctl.core.errors import ConfigError, DataError
from plmctl.core.spelling import spell_setting
from plmctl.core.values import fit
from plmctl.heads.token_weights import TOKEN_WEIGHTS
from plmctl.runtime.base import Runtime
from plmctl.storage.reading import MALFORMED, parse_json
from plmctl.storage.unpacking import refuse_bomb
from plmctl.tasks.search import Index, Ranked, search_vectors
from plmctl.tasks.short_vectors import (
    Stored,
    find_ranges,
    pack_signs,
    restore_bytes,
    restore_signs,
    round_to_bytes,
)
from plmctl.tasks.term_vectors import TermVectors, search_terms
from plmctl.training.device.precision import Precision
from plmctl.use.embed import choose_manner, embed
from plmctl.use.embedding_lines import EmbeddingLine

MADE = "made"
RANGES, EMPTY, WIDTH = "ranges", "empty", "width"
WEIGHTS = "weights"
_FIX = (
    "plmctl embed checkpoint=... input=... out=vectors.npz layers=-1 pooling=mean normalize=true,"
    " or pooling=trained of a model that was trained for it"
)


@dataclass(frozen=True)
class Manner:
    """How vectors were made: settings of `plmctl embed`."""

    checkpoint: str
    pooling: str
    layers: int | str | list[int]
    normalize: bool
    texts: list[str]
    dimensions: int | None = None
    numbers: Stored = "fp32"
    model: str = ""  # a hash of its weights; "": the file is older than these hashes

    def refuse_other(self, checkpoint: str, model: str, among: str) -> None:
        """ConfigError for questions of another model than that of the vectors.

        Args:
            model: The hash of its weights.
            among: The file of the vectors.
        """
        here = Path(checkpoint).expanduser().resolve()
        moved = here != Path(self.checkpoint).expanduser().resolve()
        same = model == self.model if self.model else not moved
        if not same and moved:
            allowed = f"{self.checkpoint}, whose vectors {among} has"
            fix = spell_setting("checkpoint", self.checkpoint)
            raise ConfigError("checkpoint", checkpoint, allowed, fix=fix)
        if not same:
            allowed = f"has other weights now than when {among} was made: embed its texts again"
            words = [spell_setting("checkpoint", checkpoint), spell_setting("out", str(among))]
            fix = f"plmctl embed {' '.join(words)} input=... overwrite=true"
            raise ConfigError("checkpoint", checkpoint, allowed, fix=fix)

    def write(self, weights: np.ndarray | None = None) -> list[tuple[str, np.ndarray]]:
        """The arrays that say so."""
        text = json.dumps(vars(self), ensure_ascii=False)
        made = (MADE, np.frombuffer(text.encode("utf-8", "replace"), np.uint8))
        return [made] if weights is None else [made, (WEIGHTS, weights)]


@dataclass(frozen=True)
class VectorFile:
    """One vector for each line of a text, [n, W], how they were made, and what tokens weigh."""

    vectors: np.ndarray | TermVectors
    manner: Manner
    weights: np.ndarray | None = None  # [V]

    @classmethod
    def read(cls, file: Path) -> VectorFile:
        """DataError for a file that is none, or has several vectors a line."""
        try:
            refuse_bomb(file)
            with np.load(file, allow_pickle=False) as found:
                if MADE not in found:
                    what = "these are not vectors with one for each line, which can be searched"
                    raise DataError(what, file=file, fix=_FIX)
                made = parse_json(bytes(found[MADE]).decode())
                manner = Manner(**{key: made[key] for key in Manner.__annotations__ if key in made})
                count = len(fit(manner.texts, list[str]))
                if manner.numbers == "sparse":
                    return cls(_read_terms(found, range(count)), manner)
                vectors = np.stack([found[f"hidden_{n}"][0] for n in range(count)])
                vectors = _restore(vectors, manner.numbers, found)
                weights = found[WEIGHTS] if manner.pooling in TOKEN_WEIGHTS else None
                finite = np.isfinite(vectors).reshape(count, -1).all(1)
                if vectors.ndim != 2 or not finite.all():
                    first = int(np.argmin(finite)) + 1
                    raise ValueError(f"the vector of line {first} is not a row of finite numbers")
                if weights is not None and not np.isfinite(weights).all():
                    raise ValueError("the weights of tokens are not all finite")
        except (OSError, EOFError, zlib.error, zipfile.BadZipFile, *MALFORMED) as error:
            what = f"no file of vectors: {error}"
            raise DataError(what, file=file, fix=_FIX) from error
        return cls(vectors, manner, weights)

    @property
    def width(self) -> int:
        """The number of columns."""
        whole = self.vectors
        return whole.width if isinstance(whole, TermVectors) else int(whole.shape[1])


def shorten(
    arrays: Iterable[tuple[str, np.ndarray]], numbers: Stored
) -> Iterator[tuple[str, np.ndarray]]:
    """The arrays of a file of vectors with a byte, or a bit, for each number, or without zeros."""
    if numbers == "fp32":
        yield from arrays
        return
    if numbers == "sparse":
        yield from _drop_zeros(arrays)
        return
    vectors: dict[int, np.ndarray] = {}  # they come by their lengths
    for name, array in arrays:
        kind, _, line = name.partition("_")
        if kind == "hidden":
            vectors[int(line)] = array
        else:
            yield name, array
    whole = np.concatenate([vectors[line] for line in sorted(vectors)])
    real = whole.any(axis=1)
    if numbers == "int8":
        ranges = find_ranges(whole[real] if real.any() else whole)
        codes = round_to_bytes(whole, ranges)
        yield RANGES, ranges
    else:
        codes = pack_signs(whole)
        yield WIDTH, np.array(whole.shape[1])
    yield EMPTY, np.flatnonzero(~real)
    yield from ((f"hidden_{line}", code[None]) for line, code in enumerate(codes))


def _rank(file: VectorFile, asked: VectorFile, top: int) -> tuple[np.ndarray, Iterator[Ranked]]:
    """(the lines with a text, the best of these for each question); of equal ones the first."""
    whole, queries = file.vectors, asked.vectors
    filled = np.diff(whole.starts) if isinstance(whole, TermVectors) else whole.any(axis=1)
    own = np.flatnonzero(filled)
    names = [f"{len(own) - place:09d}" for place in range(len(own))]
    if isinstance(whole, TermVectors) and isinstance(queries, TermVectors):
        return own, search_terms(queries, whole[own], names, top=top)
    assert isinstance(whole, np.ndarray)
    assert isinstance(queries, np.ndarray)
    index: Index = "binary" if file.manner.numbers == "binary" else "exact"
    return own, search_vectors(queries, whole[own], names, top=top, index=index)


def _drop_zeros(arrays: Iterable[tuple[str, np.ndarray]]) -> Iterator[tuple[str, np.ndarray]]:
    width = 0
    for name, array in arrays:
        kind, _, line = name.partition("_")
        if kind != "hidden":
            yield name, array
            continue
        columns = np.flatnonzero(array[0])
        width = max(width, array.shape[1])
        yield f"columns_{line}", columns.astype(np.int32)
        yield f"values_{line}", array[0, columns]
    yield WIDTH, np.array(width)


def _read_terms(found: Mapping[str, np.ndarray], lines: Iterable[int]) -> TermVectors:
    """The vectors without zeros of some lines; ValueError for columns out of order, or numbers that
    are not finite.
    """
    columns, values, width = list[np.ndarray](), list[np.ndarray](), int(found[WIDTH])
    for line in lines:
        own, given = found[f"columns_{line}"], found[f"values_{line}"]
        known = own.ndim == 1 and own.shape == given.shape and (np.diff(own) > 0).all()
        if not (known and ((own >= 0) & (own < width) & np.isfinite(given)).all()):
            raise ValueError(f"the vector of line {line + 1} is not a row of finite numbers")
        columns.append(own)
        values.append(given)
    starts = np.concatenate([[0], [len(own) for own in columns]]).cumsum().astype(np.int64)
    none = np.zeros(0, np.int32)
    return TermVectors(
        starts, np.concatenate([none, *columns]), np.concatenate([none, *values]), width
    )


def _restore(codes: np.ndarray, numbers: Stored, found: Mapping[str, np.ndarray]) -> np.ndarray:
    """[n, W] the vectors of a file, in its order."""
    if numbers == "fp32":
        return codes
    if numbers == "int8":
        vectors = restore_bytes(codes, found[RANGES])
    else:
        vectors = restore_signs(codes, int(found[WIDTH]))
    vectors[found[EMPTY]] = 0
    return vectors


def find_nearest(
    file: VectorFile,
    loaded: Loaded,
    lines: Sequence[EmbeddingLine],
    texts: Sequence[str],
    *,
    among: str,
    top: int,
    batch_size: int,
    precision: Precision,
    runtime: Runtime | None = None,
) -> Iterator[dict[str, Any]]:
    """For each line that is not empty its text and the `top` nearest lines of `file`, best first;
    of equal ones the first line.

    Args:
        loaded: The model that made them.
        lines: The questions, as the model reads them.
        among: The path of the file, for messages.
        top: The number of lines for a question.
        batch_size: The number of questions at the same time, at most.
        runtime: The library of the computation; None: PyTorch.
    """
    made = file.manner
    manner = choose_manner(
        loaded,
        pooling=made.pooling,
        layers=made.layers,
        normalize=made.normalize,
        dimensions=made.dimensions,
    )
    if manner.whole is not None and manner.whole.weighs:
        manner = replace(manner, whole=replace(manner.whole, weights=file.weights))
    how: Any = {"batch_size": batch_size, "precision": precision, "runtime": runtime}
    asked = [number for number, line in enumerate(lines) if line.ids]
    stored: Stored = "sparse" if made.numbers == "sparse" else "fp32"
    known = dict(shorten(embed(loaded, lines, manner, **how), stored))
    whole: np.ndarray | TermVectors
    if stored == "sparse":
        whole = _read_terms(known, asked)
    else:
        whole = np.stack([known[f"hidden_{number}"][0] for number in asked])
    questions = VectorFile(whole, made)
    if questions.width != file.width:
        sizes = f"{file.width} numbers; those of the questions have {questions.width}"
        raise DataError(f"its vectors have {sizes}", file=among, fix="the same checkpoint")
    own, ranked = _rank(file, questions, top)
    for number, nearest in zip(asked, ranked, strict=True):
        found = [
            {"line": int(own[n]) + 1, "score": float(score), "text": made.texts[own[n]]}
            for n, score in zip(nearest.numbers, nearest.scores, strict=True)
        ]
        yield {"query": texts[number], "found": found}
