"""FNet (Lee-Thorp et al., 2021, arXiv:2105.03824) as `transformers` publishes it."""

from __future__ import annotations

from collections.abc import Sequence

from plmctl.core.values import Whole
from plmctl.interop.bert import (
    ACTIVATIONS,
    EMBEDDING,
    INNER,
    LAYER,
    OURS,
    PLACES,
    SETTINGS,
    BertFamily,
    pretrained_classes,
    tuned_classes,
)
from plmctl.interop.family import Node, rename_cells
from plmctl.interop.names import NameRule, Weights, linear, same
from plmctl.interop.settings import Config, Key, Numbers, Written, activation, change

POOLER = linear("heads.pooler.dense", "fnet.pooler.dense")
ABSENT = ("num_attention_heads", "attention_probs_dropout_prob")


class FNetFamily(BertFamily):
    """BERT's encoder with Fourier transforms instead of attention; a map stands behind the norm of
    the embedding.

    Padding is mixed in, as in the published class. Differs: the vector of padding learns (there: it
    stays as it is).
    """

    model_type = "fnet"
    systems = ("FNet",)
    recipes: tuple[str, ...] = ("fnet",)
    ignored = frozenset({"tpu_short_seq_length"})
    hub: tuple[tuple[str, int], ...] = (("google/fnet-base", 83), ("google/fnet-large", 238))
    stated = change(
        [each for each in SETTINGS if each.key not in ABSENT],
        activation("hidden_act", ACTIVATIONS, "gelu_new"),
        Key("type_vocab_size", "segments", Whole, 4),
        # another order of the same sums
        Written("use_tpu_fourier_optimizations", False),
    )
    prefix = "fnet."
    rules: Sequence[NameRule] = (
        *EMBEDDING,
        *linear("backbone.embedding.project", "embeddings.projection"),
        same(*PLACES),
        *linear(f"{OURS}.j.{{i}}.norm_sum", f"{LAYER}.fourier.output.LayerNorm"),
        *INNER,
    )
    architectures = (*tuned_classes("FNet", POOLER), *pretrained_classes("FNet", POOLER))
    unread: tuple[str, ...] = ()

    def numbers(self, settings: Config) -> Numbers:
        return super().numbers(settings).but(num_heads=1, attention_dropout=0.0)

    def nodes(self, numbers: Numbers) -> Node:
        nodes = super().nodes(numbers)
        nodes["model"]["embedding"] |= {"segments": numbers.segments, "mapped": True}
        stack = nodes["model"]["stack"]
        mixing = {"_target_": "plmctl.nn.cells.fourier.Fourier", "_partial_": True}
        cells = {"j": mixing, "f": stack["cells"]["f"]}
        stack |= {"layout": f"jf*{numbers.num_layers}", "cells": cells}
        return nodes

    def measure(self, config: Config, tensors: Weights, pad: int) -> Numbers:
        return super().measure(rename_cells(config, {"j": "a"}), tensors, pad)
