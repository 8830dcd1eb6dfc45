"""SpanBERT's head (Joshi et al., 2020): the two neighbours of a span and an offset inside it to
logits over the vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.heads.lm import LMHead
from plmctl.nn.cells.feedforward import find_activation


@part_of("heads")
class SBOHead(nn.Module):
    """`h = norm(activation(inner([before; after; place])))`, and a language-model head on h:
    `norm(activation(dense(h)))`.

    Neighbours [P, W] and offsets `place` [P] in 0 .. max_targets - 1 to logits [P, V]. The head
    uses the table of `token_embedding` and a bias of its own. (Joshi et al., 2020,
    arXiv:1907.10529, sec. 3.2; the released code embeds offsets in 200 numbers.)
    """

    def __init__(
        self,
        *,
        width: int,
        vocab_size: int,
        token_embedding: nn.Module,
        max_targets: int,
        place_width: int = 200,
        activation: str = "gelu",
        eps: float = 1e-12,
    ) -> None:
        super().__init__()
        for name, value in (("max_targets", max_targets), ("place_width", place_width)):
            if value < 1:
                raise ConfigError(name, value, "at least 1")
        self.place = nn.Embedding(max_targets, place_width)
        self.inner = nn.Linear(2 * width + place_width, width)
        self.activation = find_activation(activation)
        self.norm = nn.LayerNorm(width, eps=eps)
        self.lm = LMHead(
            width=width,
            vocab_size=vocab_size,
            token_embedding=token_embedding,
            tied=True,
            transform=True,
            bias=True,
            activation=activation,
            eps=eps,
        )

    def features(self, before: Tensor, after: Tensor, place: Tensor) -> Tensor:
        """[P, W] the input of the language-model head."""
        return self.norm(
            self.activation(self.inner(torch.cat([before, after, self.place(place)], -1)))
        )

    def forward(self, before: Tensor, after: Tensor, place: Tensor) -> Tensor:
        return self.lm(self.features(before, after, place))

    def loss(
        self, before: Tensor, after: Tensor, place: Tensor, ids: Tensor
    ) -> tuple[Tensor, Tensor]:
        """(summed cross-entropy in fp32, number of right first guesses), both without IGNORE."""
        return self.lm.loss(self.features(before, after, place), ids)
