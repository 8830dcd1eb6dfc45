"""The tagging head of fine-tuning (Devlin et al., 2019, sec. 5.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Unpack

from torch import Tensor, nn

from plmctl.core.parts import part_of
from plmctl.core.values import DropoutRate
from plmctl.heads.base import About, ClassHead
from plmctl.heads.crf import LinearChain
from plmctl.heads.inner import Inner, InnerSettings
from plmctl.nn.dropout import Dropout


@part_of("heads")
class Tag(Inner, ClassHead):
    """`linear(dropout(h))` for every token, [..., W] -> [..., K].

    `chain`: it also has the transitions of a CRF over the tags of a sentence, as `task.crf` asks
    for it. `dense`, `activation`, `dense_bias`, `norm_eps`, `norm_bias`: a layer before the map, as
    in `Classify` (ModernBERT).
    """

    about: About = "tokens"
    of_task = True
    by_label: ClassVar[Mapping[str, Sequence[int]]] = {
        **ClassHead.by_label,
        **{"chain.first": (0,), "chain.last": (0,), "chain.follow": (0, 1)},
    }

    def __init__(
        self,
        *,
        width: int,
        num_classes: int,
        dropout: DropoutRate,
        chain: bool = False,
        **inner: Unpack[InnerSettings],
    ) -> None:
        super().__init__(width=width, **inner)
        self.dropout = Dropout(rate=dropout)
        self.linear = nn.Linear(width, num_classes)
        self.chain = LinearChain(num_classes=num_classes) if chain else None

    def forward(self, features: Tensor) -> Tensor:
        return self.linear(self.dropout(self.transform(features)))
