"""Classification and regression heads of fine-tuning (Devlin et al., 2019, sec. 4.1; Liu et al.,
2019, released code).
"""

from __future__ import annotations

from torch import Tensor, nn

from plmctl.core.parts import part_of
from plmctl.core.values import DropoutRate
from plmctl.heads.base import About, ClassHead
from plmctl.nn.cells.feedforward import find_activation
from plmctl.nn.dropout import Dropout


@part_of("heads")
class Classify(ClassHead):
    """`linear(dropout(h))`, [..., W] -> [..., K], K = 1 for regression: BERT's, on pooled features.

    With `dense`, `linear(dropout(activation(dense(dropout(h)))))`: RoBERTa's (tanh), on the state
    of the first token itself.
    Without `bias`: that of the published GPT classifiers, on the state of the last token.
    `vectors`: how many times W columns stand for a row (heads/rows.py).
    """

    about: About = "rows"
    of_task = True

    def __init__(
        self,
        *,
        width: int,
        num_classes: int,
        dropout: DropoutRate,
        dense: bool = False,
        activation: str = "tanh",
        bias: bool = True,
        vectors: int = 1,
    ) -> None:
        super().__init__()
        self.activation = find_activation(activation)
        self.dropout = Dropout(rate=dropout)
        self.dense = nn.Linear(vectors * width, width) if dense else None
        self.linear = nn.Linear(width if dense else vectors * width, num_classes, bias=bias)

    def forward(self, features: Tensor) -> Tensor:
        if self.dense is not None:
            features = self.activation(self.dense(self.dropout(features)))
        return self.linear(self.dropout(features))
