"""The head of coreference by span ranking (Lee et al., 2017, arXiv:1707.07045; Lee et al., 2018,
arXiv:1804.05392; on BERT: Joshi et al., 2019, arXiv:1908.09091).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from plmctl.core.parts import part_of
from plmctl.core.values import Count, DropoutRate
from plmctl.heads.base import About, Head, widen
from plmctl.nn.dropout import Dropout

# buckets of lengths and distances: 0 to 4, 5 to 7, 8 to 15, 16 to 31, 32 to 63, 64 and more
BUCKETS = 10
_ABOVE = (1, 2, 3, 4, 5, 8, 16, 32, 64)
SPEAKERS = 3  # speakers of a pair: not known, others, the same


@part_of("heads")
class SpanRank(Head):
    """Scores of spans, and of how well two of them go together.

    `g = [x_first; x_last; sum_t a_t x_t; width]`, a the softmax of `w x_t` over the tokens of the
    span. `s_m = FFNN(g) + FFNN(width')`, `s_c(i, j) = drop(W g_i) drop(g_j)`,
    `s_a(i, j) = FFNN([g_i; g_j; g_i g_j; speaker; distance; rows])`: learned vectors of whether the
    speakers are the same, of the number of spans from j to i, and of rows.

    Args:
        width: The width of the states.
        hidden: units of each FFNN, which has one layer (Joshi et al., 2019, released code).
        features: width of the learned vectors.
        dropout: The rate of dropout on hidden units and learned vectors.
    """

    about: About = "spans"
    of_task = True

    def __init__(self, *, width: int, hidden: Count, features: Count, dropout: DropoutRate) -> None:
        super().__init__()
        self.size = 3 * width + features
        self.dropout = Dropout(rate=dropout)
        self.attention = nn.Linear(width, 1)
        self.width = nn.Embedding(BUCKETS, features)
        self.prior = nn.Embedding(BUCKETS, features)
        self.speaker = nn.Embedding(SPEAKERS, features)
        self.distance = nn.Embedding(BUCKETS, features)
        self.rows = nn.Embedding(BUCKETS, features)
        self.mention = self._network(self.size, hidden)
        self.of_width = self._network(features, hidden)
        self.coarse = nn.Linear(self.size, self.size)
        self.pair = self._network(3 * self.size + 3 * features, hidden)

    def _network(self, size: int, hidden: int) -> nn.Sequential:
        return nn.Sequential(nn.Linear(size, hidden), nn.ReLU(), self.dropout, nn.Linear(hidden, 1))

    def forward(self, features: Tensor) -> Tensor:
        """[..., W] -> [..., 1] how much a token counts in the spans that it is in."""
        return self.attention(features)

    def represent(
        self, states: Tensor, row: Tensor, first: Tensor, last: Tensor, words: Tensor
    ) -> Tensor:
        """[m, G] the vectors of spans.

        Args:
            states: [B, T, W].
            row: [m] of each span; first, last: [m] its tokens; words: [m] how many it has.
        """
        scores = widen(self(states))[..., 0]  # [B, T]
        position = torch.arange(states.shape[1], device=states.device)
        heads = states.new_zeros(len(row), states.shape[-1])
        for number in row.unique().tolist():  # one row at a time: [m, T] stays small
            own = (row == number).nonzero()[:, 0]
            inside = (position >= first[own, None]) & (position <= last[own, None])  # [m', T]
            lowest = torch.finfo(scores.dtype).min
            share = scores[number].expand_as(inside).masked_fill(~inside, lowest).softmax(-1)
            mean = share.to(states.dtype) @ states[number]  # [m', W]
            heads = heads.index_put((own,), mean.to(heads.dtype))  # bf16 makes them narrower
        width = self.dropout(self.width(bucket(words)))
        return torch.cat([states[row, first], states[row, last], heads, width], -1)

    def score_mentions(self, spans: Tensor, words: Tensor) -> Tensor:
        """[m, G], [m] -> [m] s_m."""
        return widen(self.mention(spans) + self.of_width(self.prior(bucket(words))))[:, 0]

    def score_roughly(self, spans: Tensor) -> Tensor:
        """[k, G] -> [k, k] s_c(i, j)."""
        return widen(self.dropout(self.coarse(spans)) @ self.dropout(spans).T)

    def score_pairs(
        self, spans: Tensor, others: Tensor, speaker: Tensor, distance: Tensor, rows: Tensor
    ) -> Tensor:
        """spans [k, G], others [k, A, G], the rest [k, A] -> [k, A] s_a(i, j)."""
        learned = torch.cat(
            [self.speaker(speaker), self.distance(bucket(distance)), self.rows(bucket(rows))], -1
        )
        own = spans[:, None].expand_as(others)
        pairs = torch.cat([own, others, own * others, self.dropout(learned)], -1)
        return widen(self.pair(pairs))[..., 0]


def bucket(counts: Tensor) -> Tensor:
    """The number of the bucket of each count (Lee et al., 2017, sec. 5)."""
    return torch.bucketize(counts, torch.tensor(_ABOVE, device=counts.device), right=True)
