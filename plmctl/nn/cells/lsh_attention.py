"""Attention inside of buckets of similar tokens (Kitaev et al., 2020: Reformer)."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn import functional as F

from plmctl.core.errors import ConfigError
from plmctl.core.graphs import outside_graphs
from plmctl.core.parts import part_of
from plmctl.core.values import Count, DropoutRate, Whole
from plmctl.nn.cells.base import MAPS, Cell, CellFacts, RowSize, Work, check_heads, check_reading
from plmctl.nn.chunks import Sorting, with_previous
from plmctl.nn.dropout import Dropout
from plmctl.nn.env import Env, Streams
from plmctl.nn.hashing import count_buckets, hash_vectors

# scores of a pair that may not be seen, and of a token with itself: seen if there is nothing else
HIDDEN, SELF = -1e9, -1e5


@part_of("cells")
class LSHAttention(Cell):
    """Attention with q = k up to length, of each token to tokens whose hashes are near; time and
    memory are linear in the length of a row.

    [B, T, W] -> [B, T, W]. The rows of `qkv.weight [2 H D, W]` are q, then v, each ordered (head,
    D). A score is `q_i . q_j / |q_j|`. In each of `rounds` rounds the tokens are sorted by the hash
    of q (nn/hashing.py), and tokens of one bucket by position. They are then cut into chunks of
    `chunk`. A token sees its own chunk and the one before, itself only if there is nothing else.
    With z_ir the log of the sum of exponentiated scores in round r, o_i = sum_r softmax_r(z_ir)
    o_ir.

    `variant="paper"` (appendix A, eq. 11 to 16): only tokens of the same bucket, and log N less for
    a pair that N rounds put into one bucket. "released" (trax and transformers): a token sees all
    of the two chunks, and rows of up to `chunk` tokens see all. The first chunk of a round follows
    the last one of the round before; the first of all follows the last of all.

    Args:
        chunk: Tokens of a chunk; rows are padded to a multiple inside.
        rounds: Hashes; each costs as much time and memory as the first.
        causal: Only earlier tokens are seen. The chunk of a token depends on all tokens of its row,
            and no gradient shows this.
        buckets: Even number, or even factors of it ([16, 32] are 512); null: twice as many as
            there are chunks in a row, in two factors from 128 on.
        hash_seed: The seed of the rotations in evaluation, the same in all layers. In training each
            pass draws its own, from the generator that a run resumes.
        max_length: Tokens of the longest row.

    Padding and packed documents have buckets of their own and see each other nowhere. The rotations
    of positions act on q before it is hashed; positions that change scores are refused.
    Differs: dropout on the probabilities is drawn for each chunk (trax: once for all). Reading
    token by token, each new token is sorted among all before it, which takes as long as to read
    them at once; states of earlier tokens stay what they were.
    (arXiv:2001.04451, sec. 2; google/trax, layers/research/efficient_attention.py.)
    """

    projected_by = "out"
    facts = CellFacts(computes="attention", biased=False, hashes=True)

    def __init__(
        self,
        *,
        width: int,
        num_heads: int,
        dropout: DropoutRate,
        chunk: Count,
        rounds: Count,
        causal: bool,
        buckets: Count | list[Count] | None = None,
        variant: Literal["paper", "released"] = "paper",
        hash_seed: Whole = 0,
        head_width: int | None = None,
        bias: bool = False,
        max_length: int | None = None,
    ) -> None:
        super().__init__()
        if head_width is None:
            check_heads(num_heads, width)
        self.factors = None if buckets is None else _check_buckets(buckets, max_length)
        self.num_heads, self.head_width = num_heads, head_width or width // num_heads
        self.chunk, self.rounds = chunk, rounds
        self.variant, self.hash_seed = variant, hash_seed
        inner = num_heads * self.head_width
        self.qkv = nn.Linear(width, 2 * inner, bias=bias)
        gives = {**MAPS, "qkv": ("query", "value")}
        self.facts = replace(self.facts, ahead=not causal, gives=gives)
        self.out = nn.Linear(inner, width, bias=bias)
        self.dropout = Dropout(rate=dropout)

    def find_factors(self, length: int) -> list[int]:
        """The factors of the number of buckets in rows of `length` tokens."""
        return self.factors or count_buckets(length, self.chunk)

    def work(self, row: RowSize) -> Work:
        """The cost without the hashes; what is sorted is kept in each round: q, v, and keys and
        values of two chunks.
        """
        own, inner = super().work(row), self.out.in_features
        pairs = self.rounds * row.tokens * min(2 * self.chunk, row.tokens)
        kept = 3 * pairs * self.num_heads + 7 * self.rounds * row.tokens * inner
        return Work(own.macs, 2 * pairs * inner, own.kept + kept)

    @outside_graphs  # seeds and sizes are values
    def forward(self, streams: Streams, env: Env) -> Tensor:
        x, op = streams["text"], env.ops["text"]
        check_reading(self, env)
        seed = int(torch.randint(2**62, (), device="cpu")) if self.training else self.hash_seed
        projected = self.qkv(x).unflatten(-1, (2, self.num_heads, self.head_width))
        q, v = projected.permute(2, 0, 3, 1, 4).unbind(0)  # [B, H, T, D]
        q, _ = op.position.rotate(q, q, op.positions, op.positions)
        q, v = env.extend(q, v)
        if self.variant == "released" and q.shape[2] <= self.chunk:
            y = self._see_all(q, v, env.all_documents)
        else:
            y = self._see_chunks(q, v, env.all_documents, env, seed)
        return self.out(y[:, :, -x.shape[1] :].transpose(1, 2).flatten(2))

    def _see_all(self, q: Tensor, v: Tensor, documents: Tensor | None) -> Tensor:
        """[B, H, L, D] where every token sees all others."""
        tokens = torch.arange(q.shape[2], device=q.device).expand(*q.shape[:2], 1, -1)
        score = self._score(q[:, :, None], q[:, :, None], tokens, tokens, documents)
        return (self.dropout(score.softmax(-1)) @ v[:, :, None])[:, :, 0]

    def _see_chunks(
        self, q: Tensor, v: Tensor, documents: Tensor | None, env: Env, seed: int
    ) -> Tensor:
        """[B, H, L, D] where a token sees two chunks in each round."""
        length = q.shape[2]
        factors = self.find_factors(length)
        buckets = env.remember(lambda: hash_vectors(q.detach(), factors, self.rounds, seed))
        if env.recorder is not None:
            env.recorder.hashes(buckets)
        if spare := -length % self.chunk:
            if documents is None:
                documents = torch.zeros(1, length, dtype=torch.long, device=q.device)
            q, v = (F.pad(each, (0, 0, 0, spare)) for each in (q, v))
            buckets, documents = F.pad(buckets, (0, spare)), F.pad(documents, (0, spare), value=-1)
        if documents is not None:  # buckets of their own; those of padding come last
            number = torch.where(documents < 0, documents.amax() + 1, documents)
            buckets = buckets + number[:, None, None] * math.prod(factors)
        order = Sorting.by(buckets)
        q, v, tokens = (self._cut(each) for each in (order.sort(q), order.sort(v), order.tokens))
        seen = with_previous(tokens)
        score = self._score(q, with_previous(q), tokens, seen, documents)
        if self.variant == "paper":
            score = score + self._bucket_mask(buckets, tokens, seen)
        weights, z = _Softmax.apply(score)
        y = self.dropout(weights) @ with_previous(v)
        y, z = (order.unsort(each.view(*order.tokens.shape, -1)) for each in (y, z))
        return (z.softmax(2) * y).sum(2)[:, :, :length]

    def _cut(self, x: Tensor) -> Tensor:
        """[B, H, R, L, ...] -> [B, H, N, m, ...], the N chunks of all rounds."""
        return x.unflatten(3, (-1, self.chunk)).flatten(2, 3)

    def _score(
        self, q: Tensor, k: Tensor, asking: Tensor, seen: Tensor, documents: Tensor | None
    ) -> Tensor:
        """[B, H, N, m, n] scores of the tokens `asking [B, H, N, m]` for the tokens `seen
        [B, H, N, n]`, whose vectors are q and k.
        """
        wide = torch.promote_types(q.dtype, torch.float32)
        k = F.rms_norm(k, k.shape[-1:], eps=1e-6) * k.shape[-1] ** -0.5
        score = (q @ k.transpose(-1, -2)).to(wide)
        i, j = asking[..., None], seen[..., None, :]
        if not self.facts.ahead:
            score.masked_fill_(j > i, HIDDEN)
        if documents is not None:
            of = documents[:, None].expand(*asking.shape[:2], -1)
            apart = _take(of, asking)[..., None] != _take(of, seen)[..., None, :]
            score.masked_fill_(apart, HIDDEN)
        return score.masked_fill_(i == j, SELF)

    def _bucket_mask(self, buckets: Tensor, asking: Tensor, seen: Tensor) -> Tensor:
        """[B, H, N, m, 2 m] `- log N_ij`, or `HIDDEN` for tokens of different buckets and for those
        of the round before; 0 for a token and itself.
        """
        count = asking.shape[2] // self.rounds
        chunk = torch.arange(asking.shape[2], device=asking.device)[:, None, None]
        previous = torch.arange(seen.shape[3], device=asking.device) < self.chunk
        together = torch.zeros((), dtype=torch.bool, device=asking.device)
        meetings = together.int()
        for number in range(self.rounds):
            of = buckets[:, :, number]
            same = _take(of, asking)[..., None] == _take(of, seen)[..., None, :]
            together = together | (same & (chunk // count == number))
            meetings = meetings + same.int()
        together = together & ~(previous & (chunk % count == 0))
        mask = meetings.clamp(min=1).log().neg().masked_fill(~together, HIDDEN)
        return mask.masked_fill(asking[..., None] == seen[..., None, :], 0)


class _Softmax(Function):
    """p = softmax(s), and z = log sum exp s [..., 1]. The gradient is `ds = p (dp - sum(dp p) +
    dz)`, so only p is stored.
    """

    @staticmethod
    def forward(ctx: Any, score: Tensor) -> tuple[Tensor, Tensor]:
        p = score.softmax(-1)
        ctx.save_for_backward(p)
        return p, score.amax(-1, keepdim=True) - p.amax(-1, keepdim=True).log()

    @staticmethod
    def backward(ctx: Any, dp: Tensor, dz: Tensor) -> Tensor:  # type: ignore[override]
        (p,) = ctx.saved_tensors
        return torch.addcmul(torch._softmax_backward_data(dp, p, -1, p.dtype), p, dz)


def _take(x: Tensor, tokens: Tensor) -> Tensor:
    """[B, H, N, n] what `x [B, H, L]` has for `tokens [B, H, N, n]`."""
    return x.gather(2, tokens.flatten(2)).view_as(tokens)


def _check_buckets(buckets: int | list[int], max_length: int | None) -> list[int]:
    """The factors of a number of buckets."""
    factors = [buckets] if isinstance(buckets, int) else list(buckets)
    odd = [factor for factor in factors if factor % 2]
    if odd or not factors:
        even = [factor + factor % 2 for factor in factors] or [2]
        fix = f"buckets={even[0] if isinstance(buckets, int) else even}".replace(" ", "")
        allowed = "an even number or even factors: half of the buckets are those of -x"
        raise ConfigError("buckets", buckets, allowed, fix=fix)
    if max_length is not None and math.prod(factors) > max_length:
        allowed = f"at most {max_length}, the tokens of the longest row; null: by its length"
        raise ConfigError("buckets", buckets, allowed, fix="buckets=null")
    return factors
