"""Vectors whose first columns are vectors, too: Matryoshka representations."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from plmctl.core.errors import ConfigError
from plmctl.heads.sentences import SENTENCE
from plmctl.models.base import Model
from plmctl.objectives.base import Output, Term


class Nested:
    """`L(v) + sum_w L(v[:w])`, L the loss of vectors v and w some widths, all with the weight 1
    (Kusupati et al., 2022, arXiv:2205.13147, eq. 1; c_m = 1 in sec. 3).

    Args:
        widths: The numbers of first columns; none: the loss of the whole vectors alone.
    """

    def __init__(self, widths: Sequence[int]) -> None:
        self.widths = list(widths)
        if len({*widths}) < len(self.widths) or any(width < 1 for width in widths):
            allowed = "different numbers of columns, 1 or more"
            raise ConfigError("task.matryoshka", self.widths, allowed, fix="task.matryoshka=[]")

    def check(self, model: Model) -> None:
        """ConfigError for a width that is not less than that of the vectors of a model."""
        if not self.widths:
            return
        one = next(model.parameters()).new_zeros(1, model.backbone.width)
        whole = (model.heads[SENTENCE](one) if SENTENCE in model.heads else one).shape[-1]
        if (largest := max(self.widths)) >= whole:
            allowed = f"less than {whole}, the width of the whole vectors, which are trained, too"
            raise ConfigError("task.matryoshka", largest, allowed, fix="task.matryoshka=[]")

    def cut(self, vectors: Tensor) -> list[Tensor]:
        """The vectors [..., W], and their first columns [..., w]."""
        return [vectors, *(vectors[..., :width] for width in self.widths)]

    def add_up(self, loss: Callable[[Tensor], Output], vectors: Tensor) -> Output:
        """The output for the vectors [n, W], with the losses of their first columns."""
        whole, *parts = (loss(each) for each in self.cut(vectors))
        terms = {
            name: Term(
                torch.stack([term.total, *(part.terms[name].total for part in parts)]).sum(),
                term.weight,
                term.count,
            )
            for name, term in whole.terms.items()
        }
        return Output(terms, whole.logs)
