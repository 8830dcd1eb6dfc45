"""The weight of each token of the vocabulary for a text, by a masked language model (SPLADE, Formal
et al., 2021, arXiv:2107.05720).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from plmctl.heads.base import widen


def weigh_terms(head: nn.Module, states: Tensor, real: Tensor) -> Tensor:
    """`w_v = max_t log(1 + relu(head(h_t)_v))` over the real tokens t (Formal et al., 2021,
    arXiv:2109.10086, eq. 6): 0 of most tokens v, once a model is trained for it.

    The logarithm grows with its argument, so it is taken of the largest logit; one row at a time
    has its logits in memory.

    Args:
        head: The head of masked tokens, [T, W] -> [T, V].
        states: [B, T, W] the states of the tokens.
        real: [B, T] bool, the tokens that are no padding.

    Returns:
        [B, V], 0 or more; zeros of a row without a token.
    """
    largest = [
        widen(head(own)).masked_fill(~shown[:, None], 0).max(0).values
        for own, shown in zip(states, real, strict=True)
    ]
    return torch.stack(largest).relu().log1p()
