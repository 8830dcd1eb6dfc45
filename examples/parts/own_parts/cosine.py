"""A head that compares directions (Gidaris and Komodakis, 2018, arXiv:1804.09458)."""

from torch import Tensor
from torch.nn import functional as F

from plmctl.core.parts import part_of
from plmctl.core.values import DropoutRate
from plmctl.heads.classify import Classify


@part_of("heads")
class CosineHead(Classify):
    """`scale cos(h, w_k) + b_k`, [N, W] -> [N, K]: how long a vector is does not matter.

    Its weights, and the map before them (`dense`), are those of `Classify`.
    """

    def __init__(
        self,
        *,
        width: int,
        num_classes: int,
        dropout: DropoutRate,
        scale: float,
        dense: bool = False,
        bias: bool = True,
        vectors: int = 1,
    ) -> None:
        super().__init__(
            width=width,
            num_classes=num_classes,
            dropout=dropout,
            dense=dense,
            bias=bias,
            vectors=vectors,
        )
        self.scale = scale

    def forward(self, features: Tensor) -> Tensor:
        if self.dense is not None:
            features = self.activation(self.dense(self.dropout(features)))
        directions = F.normalize(self.dropout(features), dim=-1)  # [N, W]
        classes = F.normalize(self.linear.weight, dim=-1)  # [K, W]
        return F.linear(self.scale * directions, classes, self.linear.bias)
