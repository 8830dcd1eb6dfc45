"""N-grams of tokens that stand together more often than by chance, and where rows have them (ZEN;
Diao et al., 2019).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.core.values import Count, Number

SHORTEST = 2  # tokens of an n-gram
_BASE = 1 << 24  # above every token
_NONE = torch.iinfo(torch.int64).max  # an edge that there is not
Ngram = tuple[int, ...]


class Matches(NamedTuple):
    """The n-grams of each row, the longest first; behind the first `length` of them are zeros."""

    numbers: Tensor  # [B, K] int64 of the n-gram in the lexicon, from 0 on
    start: Tensor  # [B, K] its first token
    size: Tensor  # [B, K] how many tokens it has
    length: Tensor  # [B]


@part_of("lexicon")
class NgramLexicon(nn.Module):
    """The `count` most frequent n-grams x_1 .. x_n of a text, 2 <= n <= `longest`, that stand there
    at least `often` times, with `log(p(x_i x_{i+1}) / (p(x_i) p(x_{i+1}))) >= pmi` for all i.

    Kept in the checkpoint as a tree of tokens: `edges`, sorted, are `2^24 node + token` and lead to
    node 1, 2, ...; `ends` is 1 + the number of the n-gram that ends at a node, else 0. Node 0 is
    the root. (Diao et al., 2019, arXiv:1911.00720, sec. 2.1: any way to find n-grams; mutual
    information and frequency are those of the authors' later work, recalled, not checked.)

    Args:
        most: n-grams of a row; of more, short ones are left out, then those at its end.
    """

    edges: Tensor
    ends: Tensor

    def __init__(
        self, *, count: Count, longest: Count, often: Count, pmi: Number, most: Count
    ) -> None:
        super().__init__()
        if longest < SHORTEST:
            raise ConfigError("longest", longest, f"{SHORTEST} tokens or more")
        self.count = count
        self.longest = longest
        self.often = often
        self.pmi = pmi
        self.most = most
        nodes = count * longest
        self.register_buffer("edges", torch.full((nodes,), _NONE))
        self.register_buffer("ends", torch.zeros(nodes + 1, dtype=torch.int64))

    @property
    def known(self) -> int:
        """How many n-grams it has."""
        return int((self.ends > 0).sum())

    def learn(self, ids: np.ndarray, special: np.ndarray) -> None:
        """Take the n-grams of a text.

        Args:
            ids: [N] int64 tokens.
            special: [V] bool, tokens that no n-gram has.
        """
        found = count_ngrams(ids, special, longest=self.longest, often=self.often, pmi=self.pmi)
        frequent = sorted(found.items(), key=lambda each: (-each[1], len(each[0]), each[0]))
        edges, ends = plant([ngram for ngram, _ in frequent[: self.count]])
        self.edges.fill_(_NONE)
        self.ends.zero_()
        self.edges[: len(edges)] = torch.tensor(edges, dtype=torch.int64)
        self.ends[: len(ends)] = torch.tensor(ends)

    def forward(self, ids: Tensor, documents: Tensor | None = None) -> Matches:
        """Find the n-grams of rows.

        Args:
            ids: [B, T].
            documents: [B, T] numbers; no n-gram is of two of them. None: a row is one.
        """
        length = ids.shape[1]
        sizes = torch.arange(SHORTEST, self.longest + 1, device=ids.device)  # [D]
        found = self._walk(ids, documents)  # [B, T, D]
        before_end = length - torch.arange(length, device=ids.device)[:, None]
        rank = ((found > 0) * (sizes * (length + 1) + before_end)).flatten(1)  # [B, T D]
        kept = (rank > 0).sum(1).clamp(max=self.most)
        rank, place = rank.topk(max(1, int(kept.max())), dim=1)  # [B, K]
        there = rank > 0
        numbers = (found.flatten(1).gather(1, place) - 1) * there
        start, size = place // len(sizes) * there, (SHORTEST + place % len(sizes)) * there
        return Matches(numbers, start, size, kept)

    def _walk(self, ids: Tensor, documents: Tensor | None) -> Tensor:
        """[B, T, D] 1 + the number of the n-gram of 2, 3, ... tokens that begins at a token, 0
        where none does.
        """
        length, more = ids.shape[1], self.longest - 1
        tokens = F.pad(ids, (0, more), value=-1)
        homes = None if documents is None else F.pad(documents, (0, more), value=-1)
        node, goes_on = torch.zeros_like(ids), torch.ones_like(ids, dtype=torch.bool)
        found = []
        for depth in range(self.longest):
            token = tokens[:, depth : depth + length]
            edge = node * _BASE + token
            place = torch.searchsorted(self.edges, edge)
            goes_on &= self.edges[place.clamp(max=len(self.edges) - 1)] == edge
            goes_on &= token >= 0
            if homes is not None:
                goes_on &= homes[:, depth : depth + length] == documents
            node = (place + 1) * goes_on
            found.append(self.ends[node])
        return torch.stack(found[SHORTEST - 1 :], -1)


def count_ngrams(
    ids: np.ndarray, special: np.ndarray, *, longest: int, often: int, pmi: float
) -> dict[Ngram, int]:
    """How often each n-gram of `NgramLexicon` stands in `ids [N]`.

    An n-gram is not more frequent than its first n - 1 tokens, so that only frequent ones are made
    longer.
    """
    bound = find_bonds(ids, special, pmi)  # [N - 1]
    start, group = np.arange(len(ids)), ids.copy()
    counts: dict[Ngram, int] = {}
    for size in range(SHORTEST, longest + 1):
        start = start[start + size - 1 < len(ids)]
        start = start[bound[start + size - 2]]
        if not len(start):
            break
        key = group[start] * _BASE + ids[start + size - 1]
        _, first, inverse, number = np.unique(
            key, return_index=True, return_inverse=True, return_counts=True
        )
        frequent = number >= often
        tokens = ids[start[first[frequent]][:, None] + np.arange(size)]  # [m, n]
        counts |= dict(zip(map(tuple, tokens.tolist()), number[frequent].tolist(), strict=True))
        kept = frequent[inverse]
        start, inverse = start[kept], inverse[kept]
        group[start] = inverse
    return counts


def find_bonds(ids: np.ndarray, special: np.ndarray, pmi: float) -> np.ndarray:
    """[N - 1] bool: whether tokens i and i + 1 of `ids [N]` have at least this mutual information,
    `log(c(x y) N / (c(x) c(y)))`. Here c counts how often they occur in `ids`.
    """
    before, after = ids[:-1], ids[1:]
    single = np.bincount(ids, minlength=len(special)).astype(np.float64)
    _, inverse, pairs = np.unique(before * _BASE + after, return_inverse=True, return_counts=True)
    together = np.log(pairs[inverse] * len(ids) / (single[before] * single[after]))
    allowed: np.ndarray = (together >= pmi) & ~special[before] & ~special[after]
    return allowed


def plant(ngrams: Sequence[Ngram]) -> tuple[list[int], list[int]]:
    """The edges and ends of the tree of `NgramLexicon`."""
    numbers: dict[Ngram, int] = {(): 0}
    edges: list[int] = []
    for depth in range(1, 1 + max(map(len, ngrams), default=0)):
        prefixes = {ngram[:depth] for ngram in ngrams if len(ngram) >= depth}
        own = {numbers[prefix[:-1]] * _BASE + prefix[-1]: prefix for prefix in prefixes}
        for edge in sorted(own):
            edges.append(edge)
            numbers[own[edge]] = len(edges)
    ends = [0] * (1 + len(edges))
    for number, ngram in enumerate(ngrams):
        ends[numbers[ngram]] = 1 + number
    return edges, ends
