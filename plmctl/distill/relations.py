"""Signals between the relations of tokens in one layer (Wang et al., 2020 and 2021: MiniLM,
MiniLMv2).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import gcd

import torch
from torch import Tensor

from plmctl.core.batch import Batch
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.distill.base import Measures, Predictions, Signal, Teacher
from plmctl.objectives.base import Output, Term
from plmctl.objectives.generator import wide

VECTORS = ("queries", "keys", "values")


@part_of("signals")
class MiniLM(Signal):
    """`mean_h KL(A_T[i] || A_S[i]) + mean_h KL(VR_T[i] || VR_S[i])` of the last layers, the mean
    over real tokens i.

    A is attention, VR = softmax(V V^T / sqrt(D)) over real tokens. Widths and depths are free, the
    number of heads is not: ConfigError. (Wang et al., 2020, arXiv:2002.10957, eq. 4 to 7.)
    """

    record = frozenset({"scores", "values"})

    def __init__(self, *, weight: float, student: Measures, teacher: Teacher) -> None:
        super().__init__(weight=weight)
        check_heads(student, teacher.measures)

    def counts(self, batch: Batch, positions: Mapping[str, int], real: int) -> dict[str, int]:
        return {"attention": real, "values": real}

    def terms(self, logits: Collection[str]) -> Collection[str]:
        return ("attention", "values")

    def forward(self, student: Predictions, teacher: Predictions, batch: Batch) -> Output:
        real = student.real
        attention = kl_divergence(*(side.recorded["scores"][-1] for side in (student, teacher)))
        values = kl_divergence(
            *(relate(side.recorded["values"][-1], real) for side in (student, teacher))
        )
        divergences = {"attention": attention, "values": values}
        return Output(
            {
                name: Term(divergence.mean(1).where(real, 0.0).sum(), self.weight)
                for name, divergence in divergences.items()
            }
        )


@part_of("signals")
class MiniLMv2(Signal):
    """`sum_X a_X mean_r KL(R_T[i] || R_S[i])`, R = softmax(X X^T / sqrt(d_r)), X of queries, keys,
    values; mean over tokens i.

    The H D columns of X are split into `relation_heads` (null: as many as the teacher's heads),
    whatever heads the models have. `layer`: of the teacher, -1 the last; of the student always the
    last. `shares`: a_X of queries, keys and values. (Wang et al., 2021, arXiv:2012.15828, sec. 3.1
    and 3.2: 48 relation heads for BERT-base, 64 for large, a_X = 1/3; the 21st of BERT-large's 24
    layers.) ConfigError where the columns of a model cannot be split so.
    """

    record = frozenset(VECTORS)

    def __init__(
        self,
        *,
        weight: float,
        student: Measures,
        teacher: Teacher,
        relation_heads: int | None = None,
        layer: int = -1,
        shares: list[float] | None = None,
    ) -> None:
        super().__init__(weight=weight)
        self.shares = [1 / 3] * 3 if shares is None else shares
        if len(self.shares) != len(VECTORS) or min(self.shares) < 0:
            raise ConfigError(
                "shares", shares, "three numbers, none below 0: of queries, keys and values"
            )
        columns = {
            measures.name: measures.inner
            for measures in (student, teacher.measures)
            if measures.inner
        }
        self.relation_heads = relation_heads or teacher.measures.num_heads or 1
        for name, inner in columns.items():
            if self.relation_heads < 1 or inner % self.relation_heads:
                allowed = (
                    f"a divisor of the {inner} columns that {name} makes of queries,"
                    " of keys and of values"
                )
                fix = f"relation_heads={_largest(gcd(*columns.values()), self.relation_heads)}"
                raise ConfigError("relation_heads", self.relation_heads, allowed, fix=fix)
        most = teacher.measures.num_layers
        if not (1 <= layer <= most or -most <= layer <= -1):
            allowed = f"1 to {most}, the layers of {teacher.measures.name}, or -1: its last"
            raise ConfigError("layer", layer, allowed)
        self.layer = layer - 1 if layer > 0 else layer

    def counts(self, batch: Batch, positions: Mapping[str, int], real: int) -> dict[str, int]:
        return dict.fromkeys(VECTORS, real)

    def terms(self, logits: Collection[str]) -> Collection[str]:
        return VECTORS

    def forward(self, student: Predictions, teacher: Predictions, batch: Batch) -> Output:
        terms, real = {}, student.real
        for name, share in zip(VECTORS, self.shares, strict=True):
            own, other = student.recorded[name][-1], teacher.recorded[name][self.layer]
            divergence = kl_divergence(
                *(relate(split_heads(side, self.relation_heads), real) for side in (own, other))
            )
            terms[name] = Term(divergence.mean(1).where(real, 0.0).sum(), self.weight * share)
        return Output(terms)


def _largest(columns: int, most: int) -> int:
    """The largest divisor of `columns` that is not above `most`."""
    return max(n for n in range(1, max(1, most) + 1) if columns % n == 0)


def split_heads(x: Tensor, heads: int) -> Tensor:
    """[B, H, T, D] -> [B, heads, T, H D / heads]: the same columns in other groups."""
    return x.transpose(1, 2).flatten(2).unflatten(-1, (heads, -1)).transpose(1, 2)


def relate(x: Tensor, real: Tensor) -> Tensor:
    """[B, H, T, D] -> [B, H, T, T] `x x^T / sqrt(D)` in fp32, the lowest number at columns of
    padding.
    """
    x = wide(x)
    with torch.autocast(x.device.type, enabled=False):
        scores = x @ x.transpose(-1, -2) * x.shape[-1] ** -0.5
    return scores.masked_fill(~real[:, None, None], torch.finfo(scores.dtype).min)


def kl_divergence(student: Tensor, teacher: Tensor) -> Tensor:
    """[B, H, T] `KL(softmax(teacher) || softmax(student))` over the last dimension of scores [B,
    H, T, T].
    """
    log_p, log_q = teacher.log_softmax(-1), student.log_softmax(-1)
    p = log_p.exp()
    return (p * (log_p - log_q)).where(p > 0, 0.0).sum(-1)


def check_heads(student: Measures, teacher: Measures) -> None:
    """Raise ConfigError if the numbers of heads differ; missing attention is reported elsewhere."""
    if (
        None not in (student.num_heads, teacher.num_heads)
        and student.num_heads != teacher.num_heads
    ):
        allowed = f"the {teacher.num_heads} heads of {teacher.name}: head is compared with head"
        fix = f"size.num_heads={teacher.num_heads}, or distill=minilmv2, which splits both again"
        raise ConfigError("size.num_heads", student.num_heads, allowed, fix=fix)
