"""The vector of a text as a weighted mean of its tokens. Rare tokens weigh more; a corpus gives
their frequencies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from plmctl.core.batch import Batch
from plmctl.heads.base import widen
from plmctl.heads.features import read
from plmctl.models.base import Hidden, Model


@dataclass(frozen=True)
class TokenFrequencies:
    """How often the tokens of a vocabulary stand in the texts of a corpus.

    Args:
        holding: [V] how many of them have the token.
        said: [V] how often it stands in all of them.
    """

    texts: int
    holding: np.ndarray
    said: np.ndarray

    @classmethod
    def of(cls, texts: Iterable[Sequence[int]], *, size: int) -> TokenFrequencies:
        """Those of texts as ids below `size`; empty ones count for nothing."""
        number, holding, said = 0, np.zeros(size, np.int64), np.zeros(size, np.int64)
        for ids in texts:
            found, often = np.unique(np.asarray(ids, np.int64), return_counts=True)
            holding[found] += 1
            said[found] += often
            number += len(found) > 0
        return cls(number, holding, said)


def weigh_rare(counts: TokenFrequencies) -> np.ndarray:
    """[V] the inverse document frequency: `log((N + 1) / (n_t + 1))` of a token that n_t of N texts
    have (Sparck Jones, 1972; the one more of both: Zhang et al., 2020, arXiv:1904.09675, sec. 3).
    """
    weights: np.ndarray = np.log((counts.texts + 1) / (counts.holding + 1))
    return weights


def weigh_smoothly(counts: TokenFrequencies, a: float = 1e-3) -> np.ndarray:
    """[V] the smooth inverse frequency: `a / (a + p_t)` of a token that is the share p_t of all
    (Arora et al., 2017, "A Simple but Tough-to-Beat Baseline for Sentence Embeddings", sec. 3).

    Differs: the first principal component of all vectors is not taken out of each.
    """
    weights: np.ndarray = a / (a + counts.said / max(1, counts.said.sum()))
    return weights


TOKEN_WEIGHTS: dict[str, Callable[[TokenFrequencies], np.ndarray]] = {
    "idf": weigh_rare,
    "sif": weigh_smoothly,
}


def pool_weighted(
    model: Model, batch: Batch, weights: Tensor, hidden: Hidden | None = None
) -> Tensor:
    """[B, W] the mean of the last states of each row, each by its token's number of `weights [V]`,
    in fp32 or wider; zeros where no token weighs anything.
    """
    seq = batch.seqs[batch.input]
    states = widen(read(model, batch, hidden))  # [B, T, W]
    own = weights.to(states)[seq.ids].masked_fill(~seq.real, 0)[..., None]  # [B, T, 1]
    total = own.sum(1)
    return states.masked_fill(own == 0, 0).mul(own).sum(1) / total.where(total > 0, 1)
