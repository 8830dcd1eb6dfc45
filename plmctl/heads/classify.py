"""Classification and regression heads of fine-tuning (Devlin et al., 2019, sec. 4.1; Liu et al.,
2019, released code).
"""

from __future__ import annotations

from typing import Unpack

from torch import Tensor, nn

from plmctl.core.parts import part_of
from plmctl.core.values import DropoutRate
from plmctl.heads.base import About, ClassHead
from plmctl.heads.inner import BiasesAndNorm, Inner
from plmctl.nn.dropout import Dropout


@part_of("heads")
class Classify(Inner, ClassHead):
    """`linear(dropout(h))`, [..., W] -> [..., K], K = 1 for regression: BERT's, on pooled features.

    With `dense`, `linear(dropout(activation(dense(dropout(h)))))`: RoBERTa's (tanh), on the state
    of the first token itself. `dense_bias` is that of this layer, `norm_eps` makes a norm after it
    (ModernBERT's, with gelu; Differs in training: it drops nothing before the layer).
    Without `bias`: that of the published GPT classifiers, on the state of the last token.
    `vectors`: how many times W columns stand for a row; `late`: the head decides for every token,
    [..., T, W + 1] -> [..., K], and the logits are averaged by the last column (heads/rows.py).
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
        late: bool = False,
        **inner: Unpack[BiasesAndNorm],
    ) -> None:
        columns = vectors * width
        super().__init__(width=width, columns=columns, dense=dense, activation=activation, **inner)
        self.late = late
        self.dropout = Dropout(rate=dropout)
        self.linear = nn.Linear(width if dense else columns, num_classes, bias=bias)

    def forward(self, features: Tensor) -> Tensor:
        if self.late:
            features, weights = features[..., :-1], features[..., -1:]
            return (self._decide(features) * weights).sum(-2)
        return self._decide(features)

    def _decide(self, features: Tensor) -> Tensor:
        if self.dense is not None:
            features = self.transform(self.dropout(features))
        return self.linear(self.dropout(features))
