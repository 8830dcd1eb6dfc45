"""Functions from scores to the weights of attention that replace softmax."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from plmctl.core.parts import base_of


@base_of("weights")
class AttentionWeights(nn.Module):
    """Scores [B, H, Tq, Tk] -> weights of the same shape, each row a distribution.

    A score of -inf, where a query may not see, gets 0; so does every one of a row that has no
    other. All scores are computed, whatever the kernel.
    """

    def forward(self, scores: Tensor) -> Tensor:
        raise NotImplementedError(type(self).__name__)


# (*, num_heads)
WeightsFactory = Callable[..., AttentionWeights]


def make_weights(factory: WeightsFactory | None, num_heads: int) -> AttentionWeights | None:
    """The weights of a cell; None: softmax, which the kernels compute."""
    return None if factory is None else factory(num_heads=num_heads)
