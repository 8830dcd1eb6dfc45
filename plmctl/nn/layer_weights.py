"""Weights of earlier layers: each layer reads a learned sum of all results before it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from plmctl.core.parts import part_of
from plmctl.nn.starting import Starting

Kind = Literal["changes", "states"]


@part_of("layer_weights")
class LayerWeights(Starting):
    """The input of layer n is `sum_{i <= n} w_{n,i} h_i`; h_0 are the embeddings.

        changes   h_i = layer_i(x_i) - x_i, x_i the input of layer i; w_n = softmax(a_n), a_n = 0 at
                  first (ELC-BERT, zero initialisation)
        states    h_i = layer_i(x_i); w_n = a_n, 1 for the newest at first (DenseFormer)

    Without its own input, the result of a layer of attention z and feed-forward is `z + ffn(z +
    x)`, the published one. (Charpentier and Samuel, 2023, arXiv:2311.02265, sec. 3; Pagliardini et
    al., 2024, arXiv:2402.02622, sec. 3.) Differs: the first variant of ELC-BERT, whose feed-forward
    does not read x, is left out; states are weighed after every layer, in GPT-BERT also between
    attention and feed-forward.

    Args:
        num_layers: Layers of the stack.
        kind: The results that are weighed.
        normalised: Each h_i, i > 0, has mean 0 and variance 1 over its columns (ELC-BERT,
            normalised).
        output: The result of the stack is such a sum, too (ELC-BERT, weighted output); with states
            it always is, as published.
    """

    def __init__(
        self,
        *,
        num_layers: int,
        kind: Kind = "changes",
        normalised: bool = False,
        output: bool = False,
    ) -> None:
        super().__init__()
        self.kind, self.normalised = kind, normalised
        self.output = output or kind == "states"
        sums = num_layers + self.output
        # a vector for each sum: vectors do not decay
        self.scores = nn.ParameterList(
            [nn.Parameter(torch.zeros(number + 1)) for number in range(sums)]
        )
        self.start(torch.default_generator)

    def start(self, generator: Generator) -> None:
        for scores in self.scores:
            scores.data.zero_()
            if self.kind == "states":
                scores.data[-1] = 1.0

    def weights(self, number: int) -> Tensor:
        """[number + 1] the weights of the results before a layer, in fp32 or wider."""
        scores: Tensor = self.scores[number]
        return scores if self.kind == "states" else scores.softmax(-1)

    def result(self, x: Tensor, after: Tensor) -> Tensor:
        """[B, T, W] what a layer adds to the results, from its input and its output."""
        h = after - x if self.kind == "changes" else after
        return F.layer_norm(h, h.shape[-1:]) if self.normalised else h

    def mix(self, number: int, results: Sequence[Tensor]) -> Tensor:
        """[B, T, W] the input of a layer, or the result of the stack behind the last one."""
        parts = zip(self.weights(number).to(results[0].dtype), results, strict=True)
        return torch.stack([weight * h for weight, h in parts]).sum(0)
