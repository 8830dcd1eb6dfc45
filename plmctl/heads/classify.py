"""Classification and regression heads of fine-tuning (Devlin et al., 2019, sec. 4.1; Liu et al., 2019, released code)."""

from __future__ import annotations

from torch import Tensor, nn

from plmctl.nn.dropout import Dropout


class Classify(nn.Module):
    """`linear(dropout(h))`, [..., W] -> [..., K], K = 1 for regression: BERT's, on pooled features.

    With `dense`, `linear(dropout(tanh(dense(dropout(h)))))`: RoBERTa's, on the state of the first token itself. Without `bias`:
    that of the published GPT classifiers, on the state of the last token.
    """

    def __init__(self, *, width: int, num_classes: int, dropout: float, dense: bool = False, bias: bool = True) -> None:
        super().__init__()
        self.dropout = Dropout(rate=dropout)
        self.dense = nn.Linear(width, width) if dense else None
        self.linear = nn.Linear(width, num_classes, bias=bias)

    def forward(self, features: Tensor) -> Tensor:
        if self.dense is not None:
            features = self.dense(self.dropout(features)).tanh()
        return self.linear(self.dropout(features))
