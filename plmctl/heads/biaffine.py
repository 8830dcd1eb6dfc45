"""The deep biaffine parser (Dozat and Manning, 2017)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from plmctl.core.parts import part_of
from plmctl.core.values import Count, DropoutRate
from plmctl.heads.base import About, Head
from plmctl.nn.dropout import Dropout


class Reduced(nn.Module):
    """`dropout(leaky_relu(W h))`, [..., W] -> [..., n]: what a word is as a head, or as a dependent
    (sec. 2.2 of Dozat and Manning, 2017).
    """

    def __init__(self, *, width: int, reduced: int, dropout: float) -> None:
        super().__init__()
        self.linear, self.dropout = nn.Linear(width, reduced), Dropout(rate=dropout)

    def forward(self, states: Tensor) -> Tensor:
        return self.dropout(F.leaky_relu(self.linear(states), 0.1))


@part_of("heads")
class Biaffine(Head):
    """Scores of heads and relations: `s_arc = H_head U h_dep + H_head u` and, for each of K
    relations, `s_rel = h_head U_k h_dep + (h_head; h_dep) w_k + b_k` (Dozat and Manning, 2017,
    arXiv:1611.01734, eq. 3, 6 and 8).

    The first state is that of the root. Differs: states are those of an encoder that is fine-tuned,
    not of LSTMs.
    """

    about: About = "tokens"
    of_task = True
    by_label: ClassVar[Mapping[str, Sequence[int]]] = {
        **{"between.weight": (0,), "beside.weight": (0,), "beside.bias": (0,)}
    }

    def __init__(
        self,
        *,
        width: int,
        num_classes: int,
        dropout: DropoutRate,
        arc_width: Count = 500,
        relation_width: Count = 100,
    ) -> None:
        super().__init__()
        arc, relation = (
            {"width": width, "reduced": reduced, "dropout": dropout}
            for reduced in (arc_width, relation_width)
        )
        self.dropout = Dropout(rate=dropout)
        self.arc_head, self.arc_dependent = Reduced(**arc), Reduced(**arc)  # type: ignore[arg-type]
        self.relation_head = Reduced(**relation)  # type: ignore[arg-type]
        self.relation_dependent = Reduced(**relation)  # type: ignore[arg-type]
        self.arcs = nn.Linear(arc_width, arc_width)  # its bias is u
        self.between = nn.Linear(relation_width, num_classes * relation_width, bias=False)
        self.beside = nn.Linear(2 * relation_width, num_classes)

    def forward(self, states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """[B, 1 + L, W] -> [B, L, 1 + L], the score of each word below each head. The second result
        is the words [B, 1 + L, n] as heads and as dependents of relations.
        """
        states = self.dropout(states)
        scores = self.arcs(self.arc_dependent(states[:, 1:])) @ self.arc_head(states).mT
        return scores, self.relation_head(states), self.relation_dependent(states)

    def relate(self, as_head: Tensor, as_dependent: Tensor, heads: Tensor) -> Tensor:
        """[B, L, K] the scores of the relations between each word and its head [B, L]."""
        chosen = as_head.gather(1, heads[..., None].expand(-1, -1, as_head.shape[2]))  # [B, L, n]
        own = as_dependent[:, 1:]
        mixed = self.between(own).unflatten(-1, (-1, own.shape[2]))  # [B, L, K, n]
        bilinear = (mixed @ chosen[..., None])[..., 0]
        return bilinear + self.beside(torch.cat([chosen, own], -1))
