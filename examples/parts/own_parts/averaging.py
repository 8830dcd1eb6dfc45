"""Average attention (Zhang et al., 2018, arXiv:1805.00631): a token reads the mean of all."""

from torch import Tensor, nn

from plmctl.core.parts import part_of
from plmctl.nn.cells.base import Cell, CellFacts
from plmctl.nn.env import Env, Streams


@part_of("cells")
class AverageAttention(Cell):
    """`y_t = W mean(x_s)`, s over the tokens of the same document: attention with equal weights.

    Differs: both directions; the paper averages the tokens up to t, and has a gate.
    """

    facts = CellFacts(computes="attention", ahead=True)

    def __init__(self, *, width: int) -> None:
        super().__init__()
        self.projection = nn.Linear(width, width)

    def forward(self, streams: Streams, env: Env) -> Tensor:
        x, documents = streams["text"], env.documents  # [B, T, W], [B, T]
        if documents is None:  # every row is one document without padding
            return self.projection(x.mean(1, keepdim=True).expand_as(x))
        same = (documents[:, :, None] == documents[:, None, :]).to(x.dtype)  # [B, T, T]
        return self.projection(same @ x / same.sum(-1, keepdim=True))
