"""Attention with separate scores of content and of distances (He et al., 2021: DeBERTa)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from plmctl.attention.kernels.base import Weigh
from plmctl.attention.kernels.dense import Mask
from plmctl.core.errors import ConfigError, nearest
from plmctl.core.parts import part_of
from plmctl.core.values import DropoutRate
from plmctl.nn.cells.base import Cell, CellFacts, Prefix, RowSize, Work, check_heads, split_heads
from plmctl.nn.disentangled import DistanceVectors
from plmctl.nn.distance_scores import score_distances
from plmctl.nn.env import Env, Streams
from plmctl.nn.weights import WeightsFactory, make_weights

TERMS = ("c2p", "p2c")


@part_of("cells")
class DisentangledAttention(Cell):
    """`out(softmax(S) v)`, S_ij = (q_i k_j + q_i K_{i-j} + k_j Q_{i-j}) / sqrt(D (1 + n)), with K
    and Q made of the vectors of distances that the position scheme has.

    [B, T, W] -> [B, T, W]. `terms`: c2p is q_i K, p2c is k_j Q; n is their number. `shared`: K and
    Q are made by the maps of keys and queries, with their biases (DeBERTa 2); otherwise by maps of
    their own, `place_key` and `place_query`. Without `key_bias` no map of keys has a bias (DeBERTa
    1). Keys and values are made of the stream `content` [B, T, W] where a model has one (the
    enhanced mask decoder). `weights` replaces softmax (nn/entmax.py).
    (arXiv:2006.03654, sec. 3.1; microsoft/DeBERTa, disentangled_attention.py.)
    Differs from eq. 4, as the released code does: both terms go by the distance i - j. In the paper
    p2c goes by j - i.
    """

    projected_by = "out"
    facts = CellFacts(
        computes="attention",
        reads=frozenset({"text", "content"}),
        records=True,
        cached=False,
        biased=False,
        turned=False,
        takes_prefix=True,
        reads_distances=True,
        gives={"q": ("query",), "k": ("key",), "v": ("value",), "out": ("output",)},
    )

    def __init__(
        self,
        *,
        width: int,
        num_heads: int,
        dropout: DropoutRate,
        terms: Sequence[str] = TERMS,
        shared: bool = False,
        key_bias: bool = True,
        head_width: int | None = None,
        weights: WeightsFactory | None = None,
    ) -> None:
        super().__init__()
        if head_width is None:
            check_heads(num_heads, width)
        for term in terms:
            if term not in TERMS or len(set(terms)) < len(terms):
                allowed = f"[], or once each of {', '.join(TERMS)}{nearest(term, TERMS)}"
                raise ConfigError("terms", list(terms), allowed)
        self.num_heads, self.head_width = num_heads, head_width or width // num_heads
        self.dropout, self.terms, self.shared = dropout, tuple(terms), shared
        inner = num_heads * self.head_width
        self.q, self.k = nn.Linear(width, inner), nn.Linear(width, inner, bias=key_bias)
        self.v, self.out = nn.Linear(width, inner), nn.Linear(inner, width)
        own = () if shared else self.terms
        self.place_key = nn.Linear(width, inner, bias=key_bias) if "c2p" in own else None
        self.place_query = nn.Linear(width, inner) if "p2c" in own else None
        self.weigh = make_weights(weights, num_heads)
        self.prefix: Prefix | None = None  # keys and values that every token sees in addition

    def find_prefix(self) -> Prefix | None:
        """The prefix that every token sees."""
        return self.prefix

    def take_prefix(self, prefix: nn.Module) -> None:
        """Let every token see this prefix from now on."""
        self.prefix = cast(Prefix, prefix)

    def work(self, row: RowSize) -> Work:
        """The cost with 2 T distances in each term; the maps of distances are computed once for
        all rows.
        """
        maps, inner = (self.q, self.k, self.v, self.out), self.num_heads * self.head_width
        tokens = (1 + row.queries) * row.tokens
        pairs = row.tokens * row.tokens * (2 + 2 * len(self.terms))
        kept = tokens * sum(part.out_features for part in maps)
        kept += row.tokens * row.tokens * self.num_heads * (2 + len(self.terms))
        return Work(tokens * sum(part.weight.numel() for part in maps), pairs * inner, kept)

    def forward(self, streams: Streams, env: Env) -> Tensor:
        if env.slot is not None:
            allowed = "a cell that reads token by token: disentangled attention reads whole rows"
            raise ConfigError("model.stack.cells", type(self).__name__, allowed)
        op, heads = env.ops["text"], (self.num_heads, self.head_width)
        content = streams.get("content")
        content = streams["text"] if content is None else content
        (q,) = split_heads(self.q(streams["text"]), *heads)  # [B, H, T, D], as k and v
        (k,), (v,) = split_heads(self.k(content), *heads), split_heads(self.v(content), *heads)
        if env.recorder is not None:
            env.recorder.vectors(q, k, v)
        q = q * (1 + len(self.terms)) ** -0.5
        bias = self._score_distances(q, k, env) if self.terms else None
        weigh: Weigh | None = self.weigh
        if bias is not None and weigh is None and not isinstance(op.plan, Mask):
            weigh = _soften  # other kernels take biases of parts of a row
        y = op(
            q,
            k,
            v,
            env,
            dropout=self.dropout if self.training else 0.0,
            bias=None if bias is None else lambda *_: bias,
            weigh=weigh,
            before=None if self.prefix is None else self.prefix(),
        )
        return self.out(y.transpose(1, 2).flatten(2))

    def _score_distances(self, q: Tensor, k: Tensor, env: Env) -> Tensor:
        """[B, H, T, T] the scaled scores of distances."""
        position = env.ops["text"].position
        assert isinstance(position, DistanceVectors)
        q = q * self.head_width**-0.5
        factor = (self.head_width * (1 + len(self.terms))) ** -0.5
        table, op = position.read().to(q.dtype), env.ops["text"]
        if _in_order(env):
            length = q.shape[2]
            steps = torch.arange(length - 1, -length, -1, device=q.device)
            row = position.number(steps)
            first, last = int(row[-1]), int(row[0])  # the rows that occur
            keys, queries = self._project(table[first : last + 1], factor)
            keys, queries = (x if x is None else x[:, row - first] for x in (keys, queries))
            return score_distances(q, keys, k, queries)
        keys, queries = self._project(table, factor)
        apart = op.positions[:, :, None] - op.places_of_keys[:, None]
        row = position.number(apart)[:, None]  # [B | 1, 1, T, T]
        row = row.expand(*q.shape[:2], -1, -1)
        parts = []
        if keys is not None:
            parts.append((q @ keys.transpose(-1, -2)).gather(-1, row))
        if queries is not None:
            found = (k @ queries.transpose(-1, -2)).gather(-1, row.transpose(-1, -2))
            parts.append(found.transpose(-1, -2))
        return parts[0] if len(parts) == 1 else parts[0] + parts[1]

    def _project(self, vectors: Tensor, factor: float) -> tuple[Tensor | None, Tensor | None]:
        """[H, R, D] each: K, and `factor` Q, of vectors [R, W]; None for a term that is left
        out.
        """
        maps = (self.k, self.q) if self.shared else (self.place_key, self.place_query)
        found = [
            part(vectors).unflatten(-1, (-1, self.head_width)).transpose(0, 1)
            if term in self.terms and part is not None
            else None
            for term, part in zip(TERMS, maps, strict=True)
        ]
        return found[0], None if found[1] is None else found[1] * factor


def _soften(scores: Tensor) -> Tensor:
    """Softmax over keys; 0 for a query that sees nothing."""
    blind = scores.isneginf().all(-1, keepdim=True)
    return scores.masked_fill(blind, 0).softmax(-1).masked_fill(blind, 0)


def _in_order(env: Env) -> bool:
    """Whether positions count the tokens of each document one by one, all of them queries."""
    if torch.compiler.is_compiling() or env.ops["text"].key_positions is not None:
        return False
    positions = env.ops["text"].positions
    if env.seq is not None and "position" not in env.seq.tracks:
        return True
    steps = positions.diff() == 1
    documents = env.documents
    if documents is not None:
        steps = steps | (documents.diff() != 0)
    return bool(steps.all())
