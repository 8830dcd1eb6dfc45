"""Knowledge attention (KnowBERT; Peters et al., 2019): mentions choose among their entities, and
all tokens read what they have chosen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from plmctl.core.parts import part_of
from plmctl.core.values import Count, DropoutRate
from plmctl.nn.cells.base import Cell, CellFacts, RowSize, Work, check_heads, split_heads
from plmctl.nn.dropout import Dropout
from plmctl.nn.env import Env, Streams
from plmctl.nn.starting import FitsIn, Starting

LOW = -1e4  # the score of a slot without a candidate
LINKER = 100  # columns inside of the linker
STREAMS = ("mentions", "candidates", "priors", "possible")


def name_stream(name: str, base: str) -> str:
    """The name of a stream of mentions: for the first base its name alone."""
    return f"{base}.{name}" if base else name


class ThereAndBack(Starting):
    """A map to fewer columns and one back, which begins as its pseudo-inverse (allenai/kb); again
    when it is `refit`, after the linker was trained alone (Peters et al., 2019, algorithm 1).
    """

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.there, self.back = nn.Linear(width, inner), nn.Linear(inner, width)

    def start(self, generator: Generator) -> None:
        nn.init.normal_(self.there.weight, std=0.02, generator=generator)
        for part in (self.there, self.back):
            nn.init.zeros_(part.bias)
        if not self.there.weight.is_meta:
            self.refit()

    @torch.no_grad()
    def refit(self) -> None:
        """Set the way back to the inverse of the trained way there."""
        self.back.weight.copy_(inverse := torch.linalg.pinv(self.there.weight))
        self.back.bias.copy_(0 - inverse @ self.there.bias)


class VectorReader(nn.Module):
    """`norm(x + attention)`, then `norm(x + feed-forward)`: x [n, E] reads y [k, E] where `seen
    [n, k]`; an x that sees nothing stays as it is.
    """

    def __init__(self, *, width: int, heads: int, inner: int, dropout: float) -> None:
        super().__init__()
        check_heads(heads, width)
        self.heads = heads
        self.q, self.kv, self.out = (
            nn.Linear(width, width), nn.Linear(width, 2 * width), nn.Linear(width, width)
        )  # fmt: skip
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width, eps=1e-12) for _ in range(2))
        self.dropout = Dropout(rate=dropout)

    def forward(self, x: Tensor, y: Tensor, seen: Tensor) -> Tensor:
        columns = x.shape[-1] // self.heads
        (q,) = split_heads(self.q(x)[None], self.heads, columns)  # [1, H, n, D]
        k, v = split_heads(self.kv(y)[None], self.heads, columns)
        some = seen.any(-1, keepdim=True)
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=(seen | ~some)[None, None])
        read = self.norms[0](x + self.dropout(self.out(mixed[0].transpose(0, 1).flatten(1))))
        read = self.norms[1](read + self.dropout(self.down(F.gelu(self.up(read)))))
        return torch.where(some, read, x)


@part_of("cells")
class KnowledgeAttention(Cell, FitsIn):
    """`back(reader(p, s'))`, p = there(h) [B, T, E], which all tokens of a document with mentions
    get, the others 0 (Peters et al., 2019, arXiv:1909.04164, sec. 3.3; allenai/kb).

        s_m     the tokens of mention m, weighted by a learned softmax, normed; then mentions of a
                document read each other
        psi_mk  MLP([s_m . e_mk / sqrt(E); prior_mk]), 2 -> 100 -> 1, for the candidates e_mk
        s'_m    norm(s_m + dropout(sum_k softmax(psi_m)_k e_mk)), over the k with psi_mk >
                `threshold`; a learned vector where there is none

    Streams of the `base`: `mentions` [m, 4] row, start, length, document; `candidates` [m, K, E],
    `priors` and `possible` [m, K]. psi is noted for the linking objective. In a trained model
    `back` begins at 0, so that the model computes what it did; after a sum that is normed (BERT)
    not quite, since that norm is a new one.
    Differs: there, too, the released code begins with the pseudo-inverse, after it has trained the
    linker alone; the stages in the header of recipes/knowbert.yaml do so.
    """

    projected_by = "maps.back"
    facts = CellFacts(computes="attention", reads=frozenset({"text", *STREAMS}), ahead=True)

    def __init__(
        self,
        *,
        width: int,
        entity_width: Count,
        entity_heads: Count,
        entity_inner: Count,
        dropout: DropoutRate,
        threshold: float | None = None,
        base: str = "",
    ) -> None:
        super().__init__()
        self.base = base
        reads = frozenset({"text", *(name_stream(name, base) for name in STREAMS)})
        self.facts = replace(self.facts, reads=reads)
        self.maps = ThereAndBack(width, entity_width)
        self.pool = nn.Linear(entity_width, 1)
        self.norm = nn.LayerNorm(entity_width, eps=1e-12)
        self.chosen_norm = nn.LayerNorm(entity_width, eps=1e-12)
        sizes = {"width": entity_width, "heads": entity_heads, "inner": entity_inner}
        self.among = VectorReader(**sizes, dropout=dropout)
        self.reader = VectorReader(**sizes, dropout=dropout)
        self.hidden, self.score = nn.Linear(2, LINKER), nn.Linear(LINKER, 1)
        self.nothing = nn.Parameter(torch.zeros(entity_width))
        self.dropout, self.threshold = Dropout(rate=dropout), threshold

    def fit_in(self) -> None:
        nn.init.zeros_(self.maps.back.weight)

    def work(self, row: RowSize) -> Work:
        """As if every fourth token were a mention."""
        own = super().work(row)
        return Work(own.macs, row.tokens * row.tokens / 2 * self.maps.back.in_features, own.kept)

    def forward(self, streams: Streams, env: Env) -> Tensor:
        x, own = streams["text"], {name: streams[name_stream(name, self.base)] for name in STREAMS}
        mentions = own["mentions"].long()
        if not len(mentions):
            return x * 0
        p = self.maps.there(x)  # [B, T, E]
        home = mentions[:, 3]
        spans = self.among(s := self.pool_mentions(p, mentions), s, home[:, None] == home)
        scores = self.link(spans, own)  # [m, K]
        env.note(self, scores)
        chosen = self.chosen_norm(spans + self.dropout(self.weigh(scores, own)))
        documents = number_documents(x, env.documents).flatten()
        seen = documents[:, None] == home  # [B T, m]
        read = self.reader(p.flatten(0, 1), chosen, seen)
        return (self.maps.back(read) * seen.any(1, keepdim=True)).view_as(x)

    def pool_mentions(self, p: Tensor, mentions: Tensor) -> Tensor:
        """[m, E] the tokens of each mention, weighted by a softmax over them, normed."""
        row, start, length = mentions[:, :3].unbind(1)
        column = torch.arange(int(length.max()), device=p.device)
        inside = column < length[:, None]  # [m, S]
        place = (start[:, None] + column).clamp(max=p.shape[1] - 1)
        tokens = p[row[:, None], place]  # [m, S, E]
        shares = self.pool(tokens)[..., 0].masked_fill(~inside, -torch.inf).softmax(-1)
        return self.norm((shares[..., None] * tokens).sum(1))

    def link(self, spans: Tensor, own: Mapping[str, Tensor]) -> Tensor:
        """[m, K] psi, `LOW` where there is no candidate."""
        candidates = own["candidates"].to(spans.dtype)
        products = (spans[:, None] * candidates).sum(-1) * spans.shape[-1] ** -0.5
        both = torch.stack([products, own["priors"].to(spans.dtype)], -1)
        scores = self.score(F.relu(self.hidden(both)))[..., 0]
        return scores.masked_fill(own["possible"] == 0, LOW)

    def weigh(self, scores: Tensor, own: Mapping[str, Tensor]) -> Tensor:
        """[m, E] the candidates of each mention, weighted by their scores."""
        kept = scores > (LOW / 2 if self.threshold is None else self.threshold)
        some = kept.any(-1, keepdim=True)
        shares = scores.masked_fill(~kept & some, -torch.inf).softmax(-1) * kept
        mixed = (shares[..., None] * own["candidates"].to(shares.dtype)).sum(1)
        return torch.where(some, mixed, self.nothing)


def number_documents(x: Tensor, documents: Tensor | None) -> Tensor:
    """[B, T] a number of the document of each token, different in every row; -1 at padding."""
    row = torch.arange(x.shape[0], device=x.device)[:, None] * x.shape[1]
    if documents is None:
        return row.expand(x.shape[:2])
    return torch.where(documents < 0, -1, row + documents)
