"""Two stacks, one reads left to right, the other right to left (Devlin et al., 2019, sec. 5.1;
Peters et al., 2018b).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from plmctl.core.batch import Batch
from plmctl.core.parts import part_of
from plmctl.models.base import Backbone, Hidden
from plmctl.models.encoder import Encoder, Initializer, refuse_halting
from plmctl.nn.recorder import NONE, Record


@part_of("model")
class TwoWay(Backbone):
    """`last = [forward(x); backward(x)]`, token ids [B, T] -> states [B, T, 2 W]: every token
    between its two contexts.

    `streams["forward"]` and `["backward"]` [B, T, W] are what a language model of each direction
    reads; no layer of one stack sees the other, so neither sees the word that it predicts.
    `record={"hidden"}`: the embedding outputs and the layers of
    both, side by side. `tied`: one table of tokens for both; without it they are two models.
    (Devlin et al., 2019, arXiv:1810.04805, sec. 5.1; Peters et al., 2018b, arXiv:1808.08949, sec.
    3.1.)
    """

    streams = frozenset({"forward", "backward"})
    writes = ""  # nothing: half of every state has read later tokens

    def __init__(
        self,
        *,
        forward: Encoder,
        backward: Encoder,
        tied: bool = True,
        initializer: Initializer | None = None,
        classifier: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        for part in (forward, backward):
            refuse_halting(part.stack, "its two stacks would halt each for itself")
        self.ahead, self.behind = forward, backward
        if tied:
            backward.embedding.token = forward.embedding.token
        self.width, self.num_layers = forward.width + backward.width, forward.num_layers
        self.needs = forward.needs | backward.needs
        self.max_length = forward.max_length
        self.initializer, self.classifier = initializer, dict(classifier or {})

    @property
    def token_embedding(self) -> nn.Module:  # type: ignore[override]
        return self.ahead.token_embedding

    def embed(self, batch: Batch, state: Any = None) -> Tensor:
        """[2, B, T, W] the input of the first layer of each stack."""
        return torch.stack([self.ahead.embed(batch), self.behind.embed(batch)])

    def encode(self, x: Tensor, batch: Batch, state: Any = None, record: Record = NONE) -> Hidden:
        left = self.ahead.encode(x[0], batch, record=record)
        right = self.behind.encode(x[1], batch, record=record)
        both = zip(left.recorded.get("hidden", []), right.recorded.get("hidden", []), strict=True)
        layers = [torch.cat(pair, -1) for pair in both]
        return Hidden(
            torch.cat([left.last, right.last], -1),
            streams={"forward": left.last, "backward": right.last},
            recorded={"hidden": layers} if layers else {},
            noted={**left.noted, **right.noted},
        )
