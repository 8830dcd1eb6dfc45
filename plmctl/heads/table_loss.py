"""Cross-entropy of states against a large table of classes, a few positions at a time."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function

from plmctl.core.batch import IGNORE

# Sizes for a CPU's caches, in positions. Matrix products of this many rows run at full speed (all
# 646 of 32 rows of 128 tokens at once: a third slower). The fp32 logits of a block and their
# softmax stay near (2 x 16 x 30,522 x 4 = 3.9 MB).
_STRIP, _BLOCK = 256, 16


class Smoothing(NamedTuple):
    """A share of the label's probability that goes to other tokens (Szegedy et al., 2016,
    arXiv:1512.00567, sec. 7).
    """

    rate: float = 0.0
    # this id and the label get none of it; None: all V tokens get the same, the label as well
    spared: int | None = None

    def shares(self, logits: Tensor, label: Tensor) -> tuple[Tensor, Tensor | float]:
        """([p, 1] mean logit of the tokens that share, what one of them has) of `logits [p, V]`
        with labels `label [p, 1]`.
        """
        if self.spared is None:
            return logits.mean(1, keepdim=True), self.rate / logits.shape[1]
        another = (label != self.spared).to(logits)
        count = logits.shape[1] - 1 - another
        own, theirs = logits.gather(1, label), logits[:, self.spared, None] * another
        return (logits.sum(1, keepdim=True) - own - theirs) / count, self.rate / count

    def take_off(self, dz: Tensor, label: Tensor, share: Tensor | float) -> None:
        """Take the `share` from the gradient of every token that has one (in place)."""
        dz -= share
        if self.spared is not None:
            assert isinstance(share, Tensor)
            dz.scatter_add_(1, label, share)
            dz[:, self.spared, None] += share * (label != self.spared)


_PLAIN = Smoothing()


def cross_entropy_of_table(
    h: Tensor,
    table: Tensor,
    bias: Tensor | None,
    ids: Tensor,
    vocab_size: int,
    chunk: int,
    smoothing: Smoothing = _PLAIN,
    compiled: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """(summed cross-entropy, number of right first guesses, cross-entropy without smoothing) of the
    logits `h table^T + bias` of the first `vocab_size` rows, without IGNORE.

    Args:
        h: [P, E] states.
        table: [V or more, E].
        bias: [V or more].
        ids: [P] labels.
        chunk: the most logits held at once.
        compiled: Whether the work on logits is one compiled graph (not with smoothing), which holds
            no copy of them; four chunks at once then.
    """
    compiled = compiled and not smoothing.rate
    result: tuple[Tensor, Tensor, Tensor] = _CrossEntropy.apply(
        h, table, bias, ids, vocab_size, chunk * 4 if compiled else chunk, smoothing, compiled
    )
    return result


class _CrossEntropy(Function):
    """`sum_p logsumexp(z_p) - z_p[id_p]`, z = h table^T + bias, with at most `chunk` logits alive.

    The gradient by z is softmax(z) - onehot(id), known as soon as z is. So gradients are made in
    the forward pass, chunk by chunk, and the backward only scales them (Hsu et al., 2024,
    arXiv:2410.10989, sec. 3.2).
    """

    @staticmethod
    def forward(
        ctx: Any,
        h: Tensor,
        table: Tensor,
        bias: Tensor | None,
        ids: Tensor,
        vocab_size: int,
        chunk: int,
        smoothing: Smoothing,
        compiled: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:
        device = h.device.type
        low = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else h.dtype
        with torch.autocast(device, enabled=False):
            train = any(ctx.needs_input_grad[:3])
            rows = max(1, chunk // len(table))
            loss, right, plain, grads = _in_chunks(
                h.to(low), table.to(low), bias, ids, vocab_size, rows, train, smoothing, compiled
            )
        ctx.mark_non_differentiable(right, plain)
        ctx.save_for_backward(*grads)
        ctx.types = [None if x is None else x.dtype for x in (h, table, bias)]
        return loss, right, plain

    @staticmethod
    def backward(  # type: ignore[override]
        ctx: Any, grad: Tensor, *_: Tensor
    ) -> tuple[Tensor | None, ...]:
        gradients = zip(ctx.saved_tensors, ctx.types, ctx.needs_input_grad[:3], strict=True)
        return (
            *(
                x.to(dtype, copy=True).mul_(grad) if needed else None
                for x, dtype, needed in gradients
            ),
            *[None] * 5,
        )


def _in_chunks(
    h: Tensor,
    table: Tensor,
    bias: Tensor | None,
    ids: Tensor,
    vocab_size: int,
    rows: int,
    train: bool,
    smoothing: Smoothing,
    compiled: bool,
) -> tuple[Tensor, Tensor, Tensor, list[Tensor | None]]:
    """(loss, right, plain loss, [dh, dtable, dbias]) over `rows` positions at a time; sums in
    fp32 (or float64).
    """
    wide = torch.promote_types(h.dtype, torch.float32)
    sums = [h.new_zeros((), dtype=kind) for kind in (wide, torch.int64, wide)]
    counted = (ids != IGNORE)[:, None]
    h = h.masked_fill(~counted, 0)  # so that other positions add nothing to dtable
    dh = torch.empty_like(h) if train else None
    dtable = torch.zeros_like(table) if train and not len(h) else None
    dbias = None if bias is None or not train else torch.zeros_like(bias, dtype=wide)
    cached = h.device.type == "cpu" and not compiled and not torch.compiler.is_compiling()
    turn = _compile_turn() if compiled else functools.partial(_softmax_minus_label, smoothing)
    for chunk in _slices(len(h), rows):
        z = h.new_empty(chunk.stop - chunk.start, len(table))
        for strip in _slices(len(z), _STRIP if cached else rows):
            span = slice(chunk.start + strip.start, chunk.start + strip.stop)
            torch.mm(h[span], table.T, out=z[strip])
            for part in _slices(span.stop - span.start, _BLOCK if cached else rows):
                part_sums = turn(z[strip][part], bias, ids[span][part], vocab_size, wide, dbias)
                sums = [a + b for a, b in zip(sums, part_sums, strict=True)]
            if dh is not None:  # z is dloss / dlogits by now
                torch.mm(z[strip], table, out=dh[span])
        if train:
            product = z.T @ h[chunk]
            dtable = product if dtable is None else dtable.to(wide).add_(product)
    loss, right, plain = sums
    return loss, right, plain, [None if dh is None else dh.mul_(counted), dtable, dbias]


def _slices(count: int, most: int) -> list[slice]:
    """`count` rows in pieces of nearly the same size, none above `most`."""
    pieces = -(-count // most)
    return [slice(count * i // pieces, count * (i + 1) // pieces) for i in range(pieces)]


def _softmax_minus_label(
    smoothing: Smoothing,
    z: Tensor,
    bias: Tensor | None,
    labels: Tensor,
    vocab_size: int,
    wide: torch.dtype,
    dbias: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Summed loss, right guesses and summed plain loss of the logits `z [p, V or more]` before
    bias.

    `z` becomes its gradient, as if all counted. A guess is right if the label scores above every
    other token: a tie, common in bf16, counts as wrong. With m the largest logit, logsumexp(z) = m
    - log max_v softmax(z)_v: the softmax, one fused pass, is all that is needed.
    """
    counted, label = (labels != IGNORE)[:, None], labels[:, None].clamp(min=0)
    logits = z.to(wide, copy=True)
    logits = logits if bias is None else logits.add_(bias)
    mean, share = smoothing.shares(logits[:, :vocab_size], label) if smoothing.rate else (None, 0.0)
    logits[:, vocab_size:] = -torch.inf
    own, p = logits.gather(1, label), torch.softmax(logits, 1)
    rival = logits.scatter_(1, label, -torch.inf).amax(1, keepdim=True)
    plain = (torch.maximum(own, rival) - p.amax(1, keepdim=True).log() - own).masked_fill_(
        ~counted, 0
    )
    loss = (
        plain if mean is None else plain + smoothing.rate * (own - mean).masked_fill_(~counted, 0)
    )
    dz = p.scatter_add_(1, label, torch.full_like(own, smoothing.rate - 1.0))
    if smoothing.rate:
        smoothing.take_off(dz[:, :vocab_size], label, share)
    if dbias is not None:
        dbias += (counted.to(wide).T @ dz)[0]
    z.copy_(dz)
    return loss.sum(), ((own > rival) & counted).sum(), plain.sum()


@functools.cache
def _compile_turn() -> Callable[..., tuple[Tensor, Tensor, Tensor]]:
    return torch.compile(_turn_into_gradients)


def _turn_into_gradients(
    z: Tensor,
    bias: Tensor | None,
    labels: Tensor,
    vocab_size: int,
    wide: torch.dtype,
    dbias: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """`_softmax_minus_label` without smoothing, for a compiler: only sums over a row, which need no
    copy of it. With t the largest logit, logsumexp(z) = t + log sum_v exp(z_v - t).
    """
    counted, label = (labels != IGNORE)[:, None], labels[:, None]
    columns = torch.arange(z.shape[1], device=z.device)
    logits = z.to(wide) if bias is None else z.to(wide) + bias
    logits = torch.where(columns < vocab_size, logits, -torch.inf)
    hit = columns == label
    own = torch.where(hit, logits, 0.0).sum(1, keepdim=True)
    rival = torch.where(hit, -torch.inf, logits).amax(1, keepdim=True)
    top = logits.amax(1, keepdim=True)
    whole = top + (logits - top).exp().sum(1, keepdim=True).log()
    dz = (logits - whole).exp() - hit.to(wide)
    if dbias is not None:
        dbias += dz.masked_fill(~counted, 0).sum(0)
    z.copy_(dz)
    loss = (whole - own).masked_fill(~counted, 0).sum()
    return loss, ((own > rival) & counted).sum(), loss
