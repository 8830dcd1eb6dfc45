"""Signals between states of layers: their squared distance (TinyBERT), their direction
(DistilBERT), those of first tokens (PKD).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from plmctl.core.batch import Batch
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.distill.base import Measures, Predictions, Signal, Teacher
from plmctl.distill.maps import Layers, make_layer_map
from plmctl.objectives.base import Output, Term
from plmctl.objectives.generator import wide


@part_of("signals")
class HiddenMSE(Signal):
    """`sum_m mean_d (W_m h_S^m + b_m - h_T^g(m))_d^2`, the mean over real tokens; with `embeddings`
    also m = 0 <-> g = 0.

    `by_layer`: each m is a term of its own. If widths differ, `projection="shared"` is one linear
    map for the embeddings and all layers, and "each" has one map for each of them. With equal
    widths no map is used. (Jiao et al., 2020, arXiv:1909.10351, eq. 8 and 9; one map:
    huawei-noah/Pretrained-Language-Model, TinyBERT, fit_dense.) Differs: the released code also
    maps between equal widths, and its mean is over padding, too.
    """

    record = frozenset({"hidden"})

    def __init__(
        self,
        *,
        weight: float,
        student: Measures,
        teacher: Teacher,
        layers: Layers = "uniform",
        embeddings: bool = True,
        projection: Literal["shared", "each"] = "shared",
        by_layer: bool = False,
    ) -> None:
        super().__init__(weight=weight)
        pairs = make_layer_map(
            layers, student=student.num_layers, teacher=teacher.measures.num_layers
        )
        self.pairs = [(0, 0), *pairs] if embeddings else pairs
        self.layers = [m for m, _ in self.pairs] if by_layer else []
        shape, self.each = (student.width, teacher.measures.width), projection == "each"
        count = 0 if shape[0] == shape[1] else len(self.pairs) if self.each else 1
        self.maps = nn.ModuleList(nn.Linear(*shape) for _ in range(count))

    def counts(self, batch: Batch, positions: Mapping[str, int], real: int) -> dict[str, int]:
        return dict.fromkeys(self.terms(()), real)

    def forward(self, student: Predictions, teacher: Predictions, batch: Batch) -> Output:
        return self.sum_layers(
            [self._distance(index, student, teacher) for index in range(len(self.pairs))]
        )

    def _distance(self, index: int, student: Predictions, teacher: Predictions) -> Tensor:
        own, other = (
            side.recorded["hidden"][m]
            for side, m in zip((student, teacher), self.pairs[index], strict=True)
        )
        if self.maps:
            own = self.maps[index if self.each else 0](own)
        return (wide(own) - wide(other)).square().mean(-1).where(student.real, 0.0).sum()


@part_of("signals")
class HiddenCosine(Signal):
    """`1 - cos(h_S, h_T)` of the last layers, the mean over real tokens.

    (Sanh et al., 2019, arXiv:1910.01108, sec. 3; research_projects/distillation of transformers,
    distiller.py.)
    ConfigError where widths differ: directions of two spaces cannot be compared.
    """

    record = frozenset({"hidden"})

    def __init__(self, *, weight: float, student: Measures, teacher: Teacher) -> None:
        super().__init__(weight=weight)
        check_widths(student, teacher.measures)

    def counts(self, batch: Batch, positions: Mapping[str, int], real: int) -> dict[str, int]:
        return {"": real}

    def forward(self, student: Predictions, teacher: Predictions, batch: Batch) -> Output:
        own, other = (wide(side.recorded["hidden"][-1]) for side in (student, teacher))
        total = (1 - F.cosine_similarity(own, other, dim=-1)).where(student.real, 0.0).sum()
        return Output({"": Term(total, self.weight)})


@part_of("signals")
class Patient(Signal):
    """`sum_m |h_S^m / |h_S^m| - h_T^g(m) / |h_T^g(m)||^2` of the token that stands for a row, the
    mean over rows.

    Its token is the anchor if rows have one each, else the first. The last layer is left out, since
    the logits cover it; a list of layers may leave it out, too. (Sun et al., 2019,
    arXiv:1908.09355, eq. 7.) Differs: the released code (intersun/PKD-for-BERT-Model-Compression,
    KD_loss.py) takes the mean over layers and width, so its weights are that many times larger.
    ConfigError where widths differ.
    """

    record = frozenset({"hidden"})

    def __init__(
        self, *, weight: float, student: Measures, teacher: Teacher, layers: Layers = "skip"
    ) -> None:
        super().__init__(weight=weight)
        check_widths(student, teacher.measures)
        most = student.num_layers
        if most < 2:
            raise ConfigError(
                "layers",
                layers,
                "a student of 2 layers or more: its last one learns only from logits",
            )
        complete = (
            layers
            if isinstance(layers, str) or len(layers) != most - 1
            else [*layers, teacher.measures.num_layers]
        )
        self.pairs = make_layer_map(complete, student=most, teacher=teacher.measures.num_layers)[
            :-1
        ]

    def counts(self, batch: Batch, positions: Mapping[str, int], real: int) -> dict[str, int]:
        return {"": batch.counts["rows"]}

    def forward(self, student: Predictions, teacher: Predictions, batch: Batch) -> Output:
        rows = torch.arange(len(batch.key), device=batch.key.device)
        anchored = batch.anchors is not None and len(batch.anchors) == len(rows)
        column = batch.anchors[:, 1] if anchored else torch.zeros_like(rows)  # type: ignore[index]
        totals = []
        for m, g in self.pairs:
            own, other = student.recorded["hidden"][m], teacher.recorded["hidden"][g]
            own, other = (F.normalize(wide(side[rows, column]), dim=-1) for side in (own, other))
            totals.append((own - other).square().sum(-1).where(batch.key >= 0, 0.0).sum())
        return Output({"": Term(torch.stack(totals).sum(), self.weight)})


def check_widths(student: Measures, teacher: Measures) -> None:
    """Raise ConfigError if the widths differ."""
    if student.width != teacher.width:
        allowed = f"the width {teacher.width} of {teacher.name}; this compares states as they are"
        fix = f"size.width={teacher.width}, or distill=tinybert, which maps one to the other"
        raise ConfigError("size.width", student.width, allowed, fix=fix)
