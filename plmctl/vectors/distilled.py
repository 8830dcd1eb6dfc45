"""Static vectors out of a model that reads texts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from plmctl.core.parts import part_of
from plmctl.core.values import Amount, Count


@part_of("method")
@dataclass(frozen=True, kw_only=True)
class Distilled:
    """`a / (a + p(w)) C (x_w - m)`: x_w is the model's vector of the word, m the mean over all
    words. C removes their first principal components, and p(w) is the share of the word in a text.

    Source: Model2Vec (Tulkens and van Dongen, 2024, github.com/MinishLab/model2vec), which reads
    each word alone; the weights are those of Arora et al., 2017, A simple but tough-to-beat
    baseline for sentence embeddings, eq. 3. In contexts: Bommasani et al., 2020, acl-main.431, sec.
    3, the mean over tokens, then over sentences. Differs: Model2Vec takes p from the rank of a
    token (Zipf), here it is counted.

    Args:
        of: The input for a word in the model.
        layer: The layer whose states are read; 0 is the embedding output.
        contexts: sentences of a word at most.
        words: the most frequent ones of the text.
        reduce: Whether vectors are reduced to the wanted width; else they are as wide as the
            model.
        sif: a; None: all words count the same.
    """

    of: Literal["alone", "contexts", "input"]
    layer: int
    contexts: Count
    words: Count
    reduce: bool
    sif: Amount | None

    def finish(self, vectors: np.ndarray, shares: np.ndarray, width: int) -> np.ndarray:
        """float32 [N, D] of the vectors that the model makes.

        Args:
            vectors: [N, W].
            shares: [N] of each word in the text, p.
            width: D; at most N or W are left.
        """
        made = vectors.astype(np.float64)
        if self.reduce:
            made = made - made.mean(0)
            _, directions = np.linalg.eigh(made.T @ made)
            made = made @ directions[:, ::-1][:, : min(width, len(made))]
        if self.sif is not None:
            made = made * (self.sif / (self.sif + shares))[:, None]
        return made.astype(np.float32)
