"""Anisotropy: how alike the vectors of unlike texts are (Ethayarajh, 2019, arXiv:1909.00512, sec.
3.4).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from plmctl.core.parts import part_of
from plmctl.probes.base import Opened, Probe
from plmctl.text.inputs import need_lines
from plmctl.use.predict import ScoreTable
from plmctl.use.sentence_vectors import choose_pooling, embed_texts


def mean_cosine(vectors: np.ndarray) -> float:
    """The mean cosine of two different rows of `vectors` [n, W]."""
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    count, total = len(unit), unit.sum(0)
    return float((total @ total - count) / (count * (count - 1)))


@part_of("probe")
@dataclass(frozen=True, kw_only=True)
class Anisotropy(Probe):
    """The mean cosine of the vectors of two texts: 0 where all directions are equally frequent.

    Args:
        path: A file with a text on each line.
        pooling: The vector of a text, as in `plmctl embed`.
    """

    path: str
    pooling: str = "mean"

    def measure(self, opened: Opened) -> ScoreTable:
        texts = [line for _, line in need_lines(Path(self.path)) if line.strip()]
        vectors = embed_texts(
            opened.loaded,
            texts,
            choose_pooling(opened.loaded, self.pooling, path="task.pooling"),
            batch_size=opened.batch_size,
            precision=opened.precision,
        )
        scores = {"texts": {"cosine": mean_cosine(vectors)}}
        return ScoreTable("anisotropy", scores, {"checkpoint": opened.folder})
