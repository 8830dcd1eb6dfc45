"""Vectors of tokens that know which tokens are neighbours, before any training."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from plmctl.core.parts import base_of, part_of
from plmctl.core.values import Amount, Share
from plmctl.nn.tables import TokenTable
from plmctl.text.frequencies import measure_frequencies

_MORE = 40  # columns beyond those wanted, by which the random factorisation is exact enough


@base_of("first_vectors")
class FirstVectors:
    """First rows of a table of tokens, made from the corpus or read."""

    counts: ClassVar[bool] = True  # whether it reads the tokens of the corpus

    def start(
        self, table: TokenTable, ids: np.ndarray, special: np.ndarray, pieces: Sequence[str] = ()
    ) -> None:
        """Replace rows of `table`.

        Args:
            ids: [N] int64 tokens of the corpus.
            special: [V] bool, ids that are not text; their rows stay.
            pieces: the tokens as they stand in the vocabulary.
        """
        raise NotImplementedError(type(self).__name__)


@part_of("first_vectors")
@dataclass(frozen=True, kw_only=True)
class PairVectors(FirstVectors):
    """The right singular vectors of `log(1 + c(v, w) / (k p(w)))`, where c counts pairs of
    neighbours. The upper half of the rows counts w just behind v, the lower half w just before v.
    `p(w)` is the share of w in the corpus, and k = `prior`.

    Without a limit of columns, `p(w) exp(that)`, scaled to 1, is how a bigram model with k added
    tokens continues v (MacKay and Peto, 1995, eq. 7). Rows and columns count p^`power` times, so
    the W columns mostly describe frequent tokens. With U S V^T the decomposition, the row of w is
    `p(w)^-power (V sqrt(S))_w`. It is turned at random, since no column is to mean more than
    another, and scaled to the average length of the drawn rows. Tokens without neighbours keep the
    row that was drawn.

    Source: Levy and Goldberg, 2014, Neural word embedding as implicit matrix factorization, sec.
    4.2, whose matrix is `max(0, log(c(v, w) / (k c(v) p(w))))`; that a language model gains when
    it starts from such vectors: Kocmi and Bojar, 2017, arXiv:1711.09160.
    """

    prior: Amount
    power: Share

    def start(
        self, table: TokenTable, ids: np.ndarray, special: np.ndarray, pieces: Sequence[str] = ()
    ) -> None:
        rows = table.weight.data[: table.vocab_size]  # [V, W]
        first = rank_pairs(ids, special, rows.shape[1], prior=self.prior, power=self.power)
        known = first.any(1)
        first = first[known]
        drawn = rows[known, : first.shape[1]]
        scale = drawn.pow(2).mean().sqrt() / first.pow(2).mean().sqrt() if known.any() else 1.0
        rows[known, : first.shape[1]] = (first * scale).to(rows)


def rank_pairs(
    ids: np.ndarray, special: np.ndarray, width: int, *, prior: float, power: float
) -> Tensor:
    """[V, at most W] the vectors of `PairVectors`, not yet scaled; 0 for tokens in no pair.

    Args:
        ids: [N] int64.
        special: [V] bool, ids that are in no pair.
    """
    size = len(special)
    before, after, counts = count_pairs(ids, special)
    shares = measure_frequencies(ids, size)  # [V] p
    weights = shares**power
    contexts = np.concatenate([before, size + after])  # 2V: tokens before, then tokens behind
    tokens = np.concatenate([after, before])
    values = np.log1p(np.concatenate([counts, counts]) / (prior * shares[tokens]))
    values *= weights[contexts % size] * weights[tokens]
    width = min(width, size)
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        warnings.filterwarnings("ignore", message="Sparse")  # csr is called beta
        torch.manual_seed(0)
        matrix = torch.sparse_coo_tensor(
            torch.from_numpy(np.stack([contexts, tokens])),
            torch.from_numpy(values).float(),
            (2 * size, size),
            check_invariants=False,
        ).to_sparse_csr()
        _, strengths, vectors = torch.svd_lowrank(matrix, q=min(width + _MORE, size), niter=2)
        turn = torch.linalg.qr(torch.randn(width, width)).Q
    kept = vectors[:, :width] * strengths[:width].sqrt() @ turn
    paired = np.bincount(tokens, minlength=size) > 0
    return kept * torch.from_numpy(paired / weights).float()[:, None]


def count_pairs(ids: np.ndarray, special: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Every pair of neighbours without special tokens: `[n]` first, `[n]` second, `[n]` how often.

    Args:
        ids: [N] int64.
        special: [V] bool.
    """
    before, after = ids[:-1], ids[1:]
    kept = ~(special[before] | special[after])
    pairs, counts = np.unique(before[kept] * len(special) + after[kept], return_counts=True)
    return pairs // len(special), pairs % len(special), counts
