"""1-vs-all: a softmax over all entities."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from plmctl.core.parts import part_of
from plmctl.graph.losses.base import FullLoss, Known, widen
from plmctl.graph.scores.base import Product, Score

HELD = 1 << 25  # scores that are in memory at once


@part_of("graph_loss")
class OneVsAll(FullLoss):
    """`-log softmax(s)(right)` over all entities (Lacroix et al., 2018, arXiv:1806.07297, eq. 6).

    If scores are products, the gradient is computed together with the softmax, which saves half of
    the work that is not in products.

    Args:
        grouped: triples with the same question stand in the same update, which compares it with all
            entities once: for n right answers a, `sum_a (log sum_e exp s(e) - s(a))`. The sum over
            an epoch is the same; there are fewer different questions in an update.
    """

    def __init__(self, *, grouped: bool = False) -> None:
        self.grouped = grouped

    def total(
        self, score: Score, question: Tensor, table: Tensor, answer: Tensor, known: Known
    ) -> Tensor:
        row = torch.arange(len(question), device=question.device)
        return self.total_of_groups(score, question, table, answer, row)

    def total_of_groups(
        self, score: Score, question: Tensor, table: Tensor, answer: Tensor, row: Tensor
    ) -> Tensor:
        """[] the summed loss of questions [U, W], of which `row` [B] says those of answers [B]."""
        if isinstance(score, Product) and torch.is_grad_enabled():
            total: Tensor = _SoftmaxOfProducts.apply(question, table, answer, row)
            return total
        scores = widen(score.compare_all(question, table))  # [U, E]
        return (scores.logsumexp(1)[row] - scores[row, answer]).sum()


class _SoftmaxOfProducts(torch.autograd.Function):
    """The summed cross-entropy of `question @ table.T`.

    d total / d scores = n softmax(scores), less 1 at each of the n right answers of a question.
    """

    @staticmethod
    def forward(ctx: Any, question: Tensor, table: Tensor, answer: Tensor, row: Tensor) -> Tensor:
        device = question.device.type
        autocast = torch.is_autocast_enabled(device)
        kind = torch.get_autocast_dtype(device) if autocast else question.dtype
        row, order = row.sort(stable=True)
        answer, times = answer[order], row.bincount(minlength=len(question))
        alone, size = bool((times == 1).all()), max(1, HELD // len(table))
        ends = times.split(size)
        with torch.autocast(device, enabled=False):
            left, right = question.to(kind), table.to(kind)
            total = question.new_zeros(())
            of_question, of_table = [], []
            answers = answer.split([int(part.sum()) for part in ends])
            for part, count, asked in zip(left.split(size), ends, answers, strict=True):
                share = (part @ right.T).softmax(1)  # [b, E]
                rows = torch.arange(len(part), device=part.device).repeat_interleave(count)
                # a probability of 0 has no logarithm
                probability = share[rows, asked].to(total.dtype).clamp(min=1e-30)
                total -= probability.log().sum()
                if not alone:
                    share *= count[:, None]
                share[rows, asked] -= 1  # scatter_add_ would copy all of it
                of_question.append(share @ right)
                of_table.append(share.T @ part)
            ctx.save_for_backward(
                torch.cat(of_question).to(question.dtype), sum(of_table[1:], of_table[0])
            )
        return total

    @staticmethod
    def backward(  # type: ignore[override]
        ctx: Any, factor: Tensor
    ) -> tuple[Tensor, Tensor, None, None]:
        of_question, of_table = ctx.saved_tensors
        return of_question * factor, of_table * factor, None, None
