"""Texts that mean the same, as vectors of a model say."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from plmctl.attack.base import Constraint, Pair
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of


@part_of("constraint")
class SimilarSentences(Constraint):
    """`cos(v(x), v(x')) >= least`, v the vector of a whole text as `plmctl embed` makes it (Jin et
    al., 2020, arXiv:1907.11932, sec. 3.1, by the Universal Sentence Encoder).

    Args:
        least: The least cosine.
        embed: texts -> [n, W], each of length 1.
    """

    def __init__(self, *, least: float, embed: Callable[[Sequence[str]], np.ndarray]) -> None:
        if not -1 <= least <= 1:
            raise ConfigError("least", least, "a cosine, from -1 to 1", fix="constraint.least=0.8")
        self.least, self.embed = least, embed
        self.known: dict[str, np.ndarray] = {}

    def keep(self, pairs: Sequence[Pair]) -> list[bool]:
        texts = dict.fromkeys(text.text for pair in pairs for text in pair)
        if new := [text for text in texts if text not in self.known]:
            self.known.update(zip(new, self.embed(new), strict=True))
        return [
            float(self.known[a.text] @ self.known[b.text]) >= self.least - 1e-6 for a, b in pairs
        ]
