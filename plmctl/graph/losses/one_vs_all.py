"""1-vs-all: a softmax over all entities."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from plmctl.core.parts import part_of
from plmctl.graph.losses.base import FullLoss, widen
from plmctl.graph.scores.base import Product, Score

HELD = 1 << 25  # scores that are in memory at once


@part_of("graph_loss")
class OneVsAll(FullLoss):
    """`-log softmax(s)(right)` over all entities (Lacroix et al., 2018, arXiv:1806.07297, eq. 6).

    Of scores that are products, the gradient is computed together with the softmax, which is half
    of the work beside the products.
    """

    def total(
        self,
        score: Score,
        question: Tensor,
        table: Tensor,
        answer: Tensor,
        known: tuple[Tensor, Tensor] | None,
    ) -> Tensor:
        if isinstance(score, Product) and torch.is_grad_enabled():
            total: Tensor = _SoftmaxOfProducts.apply(question, table, answer)
            return total
        scores = widen(score.compare_all(question, table))
        return F.cross_entropy(scores, answer, reduction="sum")


class _SoftmaxOfProducts(torch.autograd.Function):
    """The summed cross-entropy of `question @ table.T`.

    d total / d scores = softmax(scores) - 1 at the right answer.
    """

    @staticmethod
    def forward(ctx: Any, question: Tensor, table: Tensor, answer: Tensor) -> Tensor:
        device = question.device.type
        autocast = torch.is_autocast_enabled(device)
        kind = torch.get_autocast_dtype(device) if autocast else question.dtype
        with torch.autocast(device, enabled=False):
            left, right = question.to(kind), table.to(kind)
            total = question.new_zeros(())
            of_question, of_table = [], []
            size = max(1, HELD // len(table))
            for part, asked in zip(left.split(size), answer.split(size), strict=True):
                share = (part @ right.T).softmax(1)  # [b, E]
                rows = torch.arange(len(part), device=part.device)
                # a probability of 0 has no logarithm
                probability = share[rows, asked].to(total.dtype).clamp(min=1e-30)
                total -= probability.log().sum()
                share[rows, asked] -= 1  # scatter_add_ would copy all of it
                of_question.append(share @ right)
                of_table.append(share.T @ part)
            ctx.save_for_backward(
                torch.cat(of_question).to(question.dtype), sum(of_table[1:], of_table[0])
            )
        return total

    @staticmethod
    def backward(ctx: Any, factor: Tensor) -> tuple[Tensor, Tensor, None]:  # type: ignore[override]
        of_question, of_table = ctx.saved_tensors
        return of_question * factor, of_table * factor, None
