"""Layers that add, after each of them, what an encoder of n-grams has computed (ZEN; Diao et al.,
2019).
"""

from __future__ import annotations

from torch import nn

from plmctl.core.parts import part_of
from plmctl.nn.env import Env, Streams
from plmctl.nn.stack import Stack
from plmctl.nn.tables import Lookup


@part_of("table")
class NgramTable(Lookup, nn.Embedding):
    """numbers [...] -> [..., W]: a vector of each n-gram; they are no tokens of the vocabulary."""

    def __init__(self, *, vocab_size: int, width: int) -> None:
        super().__init__(vocab_size, width)


@part_of("stack")
class NgramStack(Stack):
    """`x_l = layer_l(x_{l-1}) + cover mu_min(l, L)`: after each layer a token adds the states of
    all n-grams that cover it (Diao et al., 2019, arXiv:1911.00720, sec. 2.2; sinovation/ZEN,
    modeling.py: layers above the last one of the n-grams add its states again).

    Streams: `text` [B, T, W]; `ngrams` [L, B, K, W], mu after each layer of the n-grams; `cover`
    [B, T, K], 1 if an n-gram covers a token, else 0.
    """

    def layer(self, number: int, streams: Streams, env: Env) -> Streams:
        streams = super().layer(number, streams, env)
        states = streams["ngrams"]
        own = states[min(number, len(states) - 1)]  # [B, K, W]
        return streams.replace("text", streams["text"] + streams["cover"] @ own)
