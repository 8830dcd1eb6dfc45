"""All scores at once, under a mask.

Our own kernel runs on CPU where it is faster: with dropout, and in bf16 up to a thousand keys (32
rows, 4 heads, T=128, D=64, bf16, one thread, forward and backward: 20 ms against 52 ms with
dropout, 17 ms against 54 ms without). Elsewhere, and under `torch.compile`, torch's
scaled_dot_product_attention. A query that may see nothing gives 0.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional as F

from plmctl.attention.kernels.base import Bias, Kernel, KernelPlan, Weigh
from plmctl.attention.kernels.keep import apply_mask, draw_mask, keep_rate
from plmctl.attention.patterns.base import Pattern
from plmctl.attention.patterns.causal import Causal
from plmctl.core.batch import Seq
from plmctl.core.parts import part_of

# keys; with more, the T x T probabilities no longer fit into the cache and torch's kernel wins
_LONG = 1024


class Before(NamedTuple):
    """Keys and values that stand before all tokens, [H, P, D] each, or [B, H, P, D]."""

    keys: Tensor
    values: Tensor
    real: Tensor | None = None  # [B, P] False: only fills up, and is hidden


@part_of("kernel")
class Dense(Kernel):
    """Every query against every key, under a mask: time and memory of T x T."""

    def plan(self, pattern: Pattern, seq: Seq, *, start: int = 0) -> Mask:
        return Mask.of(pattern, seq, k_offset=start)


@dataclass(frozen=True, eq=False)
class Mask(KernelPlan):
    """A pattern evaluated for one batch, shared by all layers."""

    # bool [B | 1, H | 1, Tq, Tk], True = may attend; None = everything, or `causal`
    mask: Tensor | None
    causal: bool = False  # exactly `k <= q` and nothing else, which kernels know by themselves
    _derived: dict[torch.dtype, tuple[Tensor, Tensor]] = field(
        default_factory=dict, repr=False, compare=False
    )

    @classmethod
    def of(cls, pattern: Pattern, seq: Seq, *, k_offset: int = 0) -> Mask:
        """The mask for all of `seq`; with `k_offset`, for the queries from there on; a single last
        query sees all its past.
        """
        active = pattern.simplify(seq)
        if isinstance(active, Causal) and k_offset in (0, seq.ids.shape[1] - 1):
            if k_offset == 0 and seq.ids.shape[1] > 1:
                return cls(None, causal=True)
            return cls(None)
        return cls(active.dense(seq, k_offset=k_offset))

    def derive(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor] | None:
        """(what to add to scores, which probabilities to keep) for the CPU kernel, made once for
        all layers.
        """
        if self.mask is None and not self.causal:
            return None
        if q.dtype not in self._derived:
            ones = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device)
            allowed = ones.tril() if self.mask is None else self.mask
            low = torch.finfo(q.dtype).min / 2  # finite: a row of -inf would be NaN
            add = torch.zeros(allowed.shape, dtype=q.dtype, device=q.device).masked_fill_(
                ~allowed, low
            )
            self._derived[q.dtype] = (add, -allowed.to(torch.int16))
        return self._derived[q.dtype]

    def open_blind(self) -> tuple[Tensor, Tensor] | None:
        """(the mask, in which queries that see nothing see everything; which those are), made once
        for all layers.
        """
        if self.mask is None:
            return None
        if torch.compiler.is_compiling():  # the compiler makes the mask once by itself
            blind = ~self.mask.any(-1, keepdim=True)
            return self.mask | blind, blind
        if torch.bool not in self._derived:
            blind = ~self.mask.any(-1, keepdim=True)
            self._derived[torch.bool] = (self.mask | blind, blind)
        return self._derived[torch.bool]

    def hidden(self, like: Tensor) -> Tensor | None:
        if self.causal:
            return torch.ones(like.shape[-2:], dtype=torch.bool, device=like.device).triu(1)
        return None if self.mask is None else ~self.mask

    def attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        q_positions: Tensor,
        k_positions: Tensor,
        bias: Bias | None = None,
        dropout: float = 0.0,
    ) -> Tensor:
        added = None if bias is None else bias(q, q_positions, k_positions)
        return attend(q, k, v, mask=self, bias=added, dropout=dropout)

    def select(self, rows: Tensor) -> Mask:
        """The mask of these rows of the batch."""
        if self.mask is None or self.mask.shape[0] == 1:
            return self
        return Mask(self.mask[rows], self.causal)


def attend(
    q: Tensor, k: Tensor, v: Tensor, *, mask: Mask, bias: Tensor | None = None, dropout: float = 0.0
) -> Tensor:
    """`dropout(softmax(q k^T / sqrt(D) + bias, where allowed)) v`: q [B, H, Tq, D], k and v [B,
    H, Tk, D] -> [B, H, Tq, D].
    """
    fused = dropout > 0 or (q.dtype == torch.bfloat16 and k.shape[2] <= _LONG)
    if fused and q.device.type == "cpu" and not torch.compiler.is_compiling():
        add, allowed = mask.derive(q, k) or (None, None)
        return _Attend.apply(q, k, v, bias, add, allowed, dropout)
    # kernels of GPUs give NaN for queries that see nothing
    opened = mask.open_blind() if q.device.type == "cuda" else None
    seen, blind = opened or (mask.mask, None)
    if bias is not None and mask.causal:
        bias = bias.masked_fill(torch.ones_like(bias[0, 0], dtype=torch.bool).triu(1), -torch.inf)
    elif bias is not None and seen is not None:
        bias = bias.masked_fill(~seen, -torch.inf)
    causal = mask.causal and bias is None
    added = seen if bias is None else bias
    if added is not None and torch.compiler.is_exporting():  # no other runtime repeats queries
        added = added.expand(*added.shape[:-2], q.shape[-2], k.shape[-2])
    y = F.scaled_dot_product_attention(
        q, k, v, attn_mask=added, is_causal=causal, dropout_p=dropout
    )
    return y if blind is None else y.masked_fill(blind, 0)


def attend_part(
    q: Tensor, k: Tensor, v: Tensor, *, mask: Mask, bias: Tensor | None = None, dropout: float = 0.0
) -> tuple[Tensor, Tensor]:
    """`attend` over some of the keys, [B, H, Tq, D], and z = log sum exp of their scores, [B, H,
    Tq, 1]. With y_i and z_i of disjoint parts, `sum_i softmax(z)_i y_i` attends to all of them.
    """
    if q.device.type == "cpu" and not torch.compiler.is_compiling():
        return _AttendPart.apply(q, k, v, bias, *(mask.derive(q, k) or (None, None)), dropout)
    scores = q * q.shape[-1] ** -0.5 @ k.transpose(-1, -2)
    scores = scores if bias is None else scores + bias
    hidden = mask.hidden(scores)
    if hidden is not None:
        scores = scores.masked_fill(hidden, torch.finfo(scores.dtype).min / 2)
    p = scores.softmax(-1)
    p = p if hidden is None else p.masked_fill(hidden, 0)
    wide = torch.promote_types(q.dtype, torch.float32)
    return F.dropout(p, dropout).to(v.dtype) @ v, scores.to(wide).logsumexp(-1, keepdim=True)


def attend_by(
    weigh: Weigh,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    plan: KernelPlan,
    bias: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """`attend` with `weigh` instead of softmax: all scores at once, whatever the plan."""
    p = weigh(score(q, k, plan=plan, bias=bias, low=-torch.inf))
    return F.dropout(p, dropout).to(v.dtype) @ v


def attend_behind(
    before: Before,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    plan: KernelPlan,
    bias: Tensor | None = None,
    dropout: float = 0.0,
    weigh: Weigh | None = None,
) -> Tensor:
    """Attention to [K'; k] and [V'; v]: keys K' and values V' that stand before all tokens and
    nowhere, so that no pattern hides them and no position changes their scores; all
    scores at once, whatever the plan.
    """
    first = q @ before.keys.to(q.dtype).transpose(-1, -2) * q.shape[-1] ** -0.5  # [B, H, Tq, P]
    if before.real is not None:
        first = first.masked_fill(~before.real[:, None, None], -torch.inf)
    scores = score(q, k, plan=plan, bias=bias, low=-torch.inf)
    scores = torch.cat([first.to(scores.dtype), scores], -1)  # [B, H, Tq, P + Tk]
    p = F.dropout(scores.softmax(-1) if weigh is None else weigh(scores), dropout).to(v.dtype)
    places = before.values.shape[-2]
    return p[..., :places] @ before.values.to(v.dtype) + p[..., places:] @ v


def score(
    q: Tensor, k: Tensor, *, plan: KernelPlan, bias: Tensor | None = None, low: float | None = None
) -> Tensor:
    """[B, H, Tq, Tk] `q k^T / sqrt(D) + bias` in fp32 or wider, and `low` where a query may not
    see; None: the lowest number.
    """
    wide = torch.promote_types(q.dtype, torch.float32)
    with torch.autocast(q.device.type, enabled=False):
        scores = q.to(wide) @ k.to(wide).transpose(-1, -2) * q.shape[-1] ** -0.5
        scores = scores if bias is None else scores + bias
    hidden = plan.hidden(scores)
    low = torch.finfo(wide).min if low is None else low
    return scores if hidden is None else scores.masked_fill(hidden, low)


class _Attend(Function):
    """With P = softmax(S), M the kept probabilities, c = 1 / kept: O = c (P M) V.

    dV = c (P M)^T dO;  dP = c M (dO V^T);  dS = P (dP - rowsum(dP P));
    dQ = dS K / sqrt(D);  dK = dS^T Q / sqrt(D).

    Everything of size T x T stays in the type of q (bf16 under autocast); softmax accumulates in
    fp32.
    """

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        bias: Tensor | None,
        add: Tensor | None,
        allowed: Tensor | None,
        rate: float,
    ) -> Tensor:
        return _compute(ctx, q, k, v, bias, add, allowed, rate)[0]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        return _go_back(ctx, grad, None)


class _AttendPart(Function):
    """`_Attend`, and z = log sum exp S [..., 1]: dS = P (dP - rowsum(dP P) + dz)."""

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        bias: Tensor | None,
        add: Tensor | None,
        allowed: Tensor | None,
        rate: float,
    ) -> tuple[Tensor, Tensor]:
        out, scores, p = _compute(ctx, q, k, v, bias, add, allowed, rate)
        wide = torch.promote_types(q.dtype, torch.float32)
        share = p.amax(-1, keepdim=True).to(wide).clamp(min=torch.finfo(wide).tiny)
        return out, scores.amax(-1, keepdim=True).to(wide) - share.log()

    @staticmethod
    def backward(  # type: ignore[override]
        ctx: Any, grad: Tensor, dz: Tensor
    ) -> tuple[Tensor | None, ...]:
        return _go_back(ctx, grad, dz)


def _compute(
    ctx: Any,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    add: Tensor | None,
    allowed: Tensor | None,
    rate: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """(output, scores, probabilities), and in `ctx` the tensors that `_go_back` needs."""
    ctx.root, ctx.scale = q.shape[-1] ** -0.5, 1 / keep_rate(rate)
    ctx.bias = None if bias is None else bias.shape
    with torch.autocast("cpu", enabled=False):
        q = q * ctx.root
        scores = q @ k.transpose(-1, -2)
        for term in (bias, add):
            scores = scores if term is None else scores.add_(term)
        p = torch.softmax(scores, -1)
        # only rows that may see nothing are changed
        p = p if allowed is None else apply_mask(p, allowed)
        keep = draw_mask(p.shape, rate) if rate else None
        ctx.save_for_backward(q, k, v, p, keep)
        seen = p if keep is None else apply_mask(p, keep)
        return seen @ (v if keep is None else v * ctx.scale), scores, p


def _go_back(ctx: Any, grad: Tensor, dz: Tensor | None) -> tuple[Tensor | None, ...]:
    """The gradients of the arguments of `_compute`, from those of the output and of z."""
    q, k, v, p, keep = ctx.saved_tensors
    grad = grad if keep is None else grad * ctx.scale
    dv = (p if keep is None else apply_mask(p, keep)).transpose(-1, -2) @ grad
    dp = grad @ v.transpose(-1, -2)
    dp = dp if keep is None else apply_mask(dp, keep)
    ds = torch._softmax_backward_data(dp, p, -1, p.dtype)
    ds = ds if dz is None else ds.addcmul_(p, dz.to(p.dtype))
    dq, dk = (ds @ k).mul_(ctx.root), ds.transpose(-1, -2) @ q
    return dq, dk, dv, ds.sum_to_size(ctx.bias) if ctx.needs_input_grad[3] else None, *[None] * 3
