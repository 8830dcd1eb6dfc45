"""SimCSE (Gao et al., 2021): which row of the batch is the same sentence under another
dropout mask?
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from plmctl.core.batch import IGNORE, Batch
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.heads.pooler import Pooler
from plmctl.heads.sentences import pool_text
from plmctl.models.base import Model
from plmctl.nn.cells.base import Cell
from plmctl.nn.dropout import Dropout
from plmctl.objectives.base import Contrast, Facts, Objective, Output, Term
from plmctl.objectives.contrast import find_equal, info_nce, multiply, restore_originals


@part_of("objective")
class SimCSE(Objective):
    """`- sum_i log exp(cos(h_i, h'_i) / t) / sum_j exp(cos(h_i, h'_j) / t)`, h and h' two passes of
    the clean rows.

    h = tanh(dense(x)), x the states of a row, pooled, by default that of its first token; the dense
    layer belongs to the objective, so that embeddings are x. Only dropout tells the passes apart:
    it is on in validation too. Rows of equal ids are no negatives of each other. Logged, of x
    brought to length 1: `align` = mean |x_i - x'_i|^2, `uniform` = log mean_{i != j} exp(-2 |x_i -
    x_j|^2). (Gao et al., 2021, arXiv:2104.08821, sec. 3, eq. 4 and sec. 2.3; princeton-nlp/SimCSE,
    models.py: `mlp_only_train`.) Differs: equal rows are masked. Together with mlm, each mask is
    drawn by the noise of the run, and both passes read the text before it.
    """

    embeds = True  # its model is one of texts, by the vectors of `pooling`
    facts = Facts(
        needs=frozenset({"text"}),
        terms=frozenset({"simcse"}),
        least_rows=2,
        contrasts=True,
        asks_row=True,
    )

    def __init__(
        self, *, width: int, temperature: float, pooling: Literal["first", "mean", "last"] = "first"
    ) -> None:
        super().__init__()
        if temperature <= 0:
            raise ConfigError("temperature", temperature, "above 0")
        self.temperature, self.pooling = temperature, pooling
        self.mlp = Pooler(width=width)

    def counts(self, batch: Batch) -> dict[str, int]:
        return {"simcse": batch.counts["rows"]}

    def forward(self, model: Model, batch: Batch, state: object = None) -> Output:
        clean = restore_originals(batch)
        with nullcontext() if self.training else dropping(model.backbone):
            first, second = (
                pool_text(model, view, self.pooling, model(view))
                for view in (clean, replace(clean))
            )
        a, b = (unit(self.mlp(states)) for states in (first, second))
        beside = {
            "ids": clean.text.ids.masked_fill(~clean.text.real, IGNORE),
            "first": first.detach(),
            "second": second.detach(),
        }
        vectors = {"a": a, "b": b}
        if batch.counts["rows"] < len(batch.key):  # rows that only fill the batch
            real = batch.text.length > 0
            vectors, beside = ({n: x[real] for n, x in each.items()} for each in (vectors, beside))
        return Contrast(self.compare, vectors, beside).output("simcse")

    def compare(self, vectors: Mapping[str, Tensor], beside: Mapping[str, Tensor]) -> Output:
        """The loss of all rows of an update."""
        scores, count = multiply(vectors["a"], vectors["b"]) / self.temperature, len(beside["ids"])
        loss, right = info_nce(scores, find_equal(beside["ids"]))
        logs: dict[str, tuple[Tensor, int | Tensor]] = {"acc/simcse": (right, count)}
        if count > 1:
            apart, spread = _geometry(beside["first"], beside["second"])
            logs |= {"align": (apart, count), "uniform": (spread * count, count)}
        return Output({"simcse": Term(loss, count=count)}, logs)


@contextmanager
def dropping(backbone: nn.Module) -> Iterator[None]:
    """Dropout also in validation: without it the two passes are one, and every row is right."""
    sleeping = [part for part in backbone.modules() if _drops(part) and not part.training]
    for part in sleeping:
        part.training = True
    try:
        yield
    finally:
        for part in sleeping:
            part.training = False


def _drops(part: nn.Module) -> bool:
    """Whether a part drops numbers itself; cells give their rate to the kernel."""
    return isinstance(part, Dropout) or (
        isinstance(part, Cell) and part.projections().heads is not None
    )


def unit(states: Tensor) -> Tensor:
    """[N, W] brought to length 1, in fp32 or wider."""
    return F.normalize(states.to(torch.promote_types(states.dtype, torch.float32)), dim=-1)


def _geometry(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """(sum of squared distances of the two views, log of the mean Gaussian potential of pairs),
    rows brought to length 1.
    """
    x, y = unit(first), unit(second)
    pairs = ~torch.eye(len(x), dtype=torch.bool, device=x.device)
    potential = torch.exp(4 * (multiply(x, x) - 1)).masked_fill(~pairs, 0)  # |x - y|^2 = 2 - 2 x.y
    return (x - y).square().sum(1).sum(), (potential.sum() / pairs.sum()).log()
