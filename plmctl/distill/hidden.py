"""Signals between states of layers: their squared distance (TinyBERT), their direction
(DistilBERT), those of first tokens (PKD).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from plmctl.core.batch import Batch
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.distill.base import LayerDistance, Measures, Predictions, Signal, Teacher
from plmctl.distill.maps import Layers, make_layer_map
from plmctl.objectives.base import Output, Term
from plmctl.objectives.generator import wide


@part_of("signals")
class HiddenMSE(LayerDistance):
    """`sum_m mean_d (W_m h_S^m + b_m - h_T^g(m))_d^2`, the mean over real tokens; with `embeddings`
    also m = 0 <-> g = 0.

    `by_layer`: each m is a term of its own. If widths differ, `projection="shared"` is one linear
    map for the embeddings and all layers, and "each" has one map for each of them. With equal
    widths no map is used. (Jiao et al., 2020, arXiv:1909.10351, eq. 8 and 9; one map:
    huawei-noah/Pretrained-Language-Model, TinyBERT, fit_dense.) Differs: the released code also
    maps between equal widths, and its mean is over padding, too.

    `normalised`: both states have mean 0 and variance 1 over d; `HiddenMean` and `HiddenVariance`
    compare what this leaves out (Sun et al., 2020, arXiv:2004.02984, sec. 3.2).
    """

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
        normalised: bool = False,
    ) -> None:
        how: Any = {"layers": layers, "embeddings": embeddings, "by_layer": by_layer}
        super().__init__(weight=weight, student=student, teacher=teacher, **how)
        shape, self.each = (student.width, teacher.measures.width), projection == "each"
        count = 0 if shape[0] == shape[1] else len(self.pairs) if self.each else 1
        self.maps = nn.ModuleList(nn.Linear(*shape) for _ in range(count))
        self.normalised = normalised

    def distance(self, own: Tensor, other: Tensor, number: int) -> Tensor:
        if self.maps:
            own = self.maps[number if self.each else 0](own)
        own, other = wide(own), wide(other)
        if self.normalised:
            own, other = (F.layer_norm(side, side.shape[-1:], eps=1e-12) for side in (own, other))
        return (own - other).square().mean(-1)


@part_of("signals")
class HiddenMean(LayerDistance):
    """`sum_m (mean_d h_S^m - mean_d h_T^g(m))^2`, the mean over real tokens; widths may differ.

    (Sun et al., 2020, arXiv:2004.02984, sec. 3.2, feature map statistics; the form:
    google-research/mobilebert, run_pretraining.py, beta_distill_factor=5000.) Differs: the released
    code compares a layer with all layers of the teacher.
    """

    def distance(self, own: Tensor, other: Tensor, number: int) -> Tensor:
        return (wide(own).mean(-1) - wide(other).mean(-1)).square()


@part_of("signals")
class HiddenVariance(LayerDistance):
    """`sum_m |var_d h_S^m - var_d h_T^g(m)|`, the mean over real tokens; otherwise as `HiddenMean`
    (gamma_distill_factor=5).
    """

    def distance(self, own: Tensor, other: Tensor, number: int) -> Tensor:
        return (wide(own).var(-1, correction=0) - wide(other).var(-1, correction=0)).abs()


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
            allowed = "a student of 2 layers or more: its last one learns only from logits"
            raise ConfigError("layers", layers, allowed)
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
