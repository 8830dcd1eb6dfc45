"""Pegasus with BigBird's encoder (Zaheer et al., 2020, arXiv:2007.14062, sec. 4.1) as
`transformers` publishes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from plmctl.core.values import Count, Whole
from plmctl.interop.bart import (
    MAPS,
    SEQ2SEQ,
    SETTINGS,
    BartFamily,
    bart_nodes,
    classifier_rules,
    learned,
)
from plmctl.interop.big_bird import BLOCKS, BlocksFamily, block_pattern
from plmctl.interop.family import Architecture, Node, linear_class, row_classes
from plmctl.interop.mbart import pre_norm_rules
from plmctl.interop.names import NameRule, Weights, linear, maps, same
from plmctl.interop.settings import Config, Key, Numbers, change
from plmctl.interop.stacks import HEAD, TABLES

FINAL = "layernorm_embedding"  # their name of the last norm of a stack


def _encoder_rules(*, bias: bool) -> list[NameRule]:
    ours, theirs = "backbone.encoder.stack.blocks", "encoder.layers.{i}"
    return [
        *linear(
            f"{ours}.a.{{i}}.cell.qkv",
            *(f"{theirs}.self_attn.self.{name}" for name in ("query", "key", "value")),
            bias=bias,
        ),
        *linear(f"{ours}.a.{{i}}.cell.out", f"{theirs}.self_attn.output", bias=bias),
        *linear(f"{ours}.a.{{i}}.norm_in", f"{theirs}.self_attn_layer_norm"),
        *maps(f"{ours}.f.{{i}}", theirs, MAPS),
        *linear(f"{ours}.f.{{i}}.norm_in", f"{theirs}.final_layer_norm"),
        *linear("backbone.encoder.stack.final_norm", f"encoder.{FINAL}"),
    ]


class BigBirdPegasusFamily(BlocksFamily, BartFamily):
    """Pegasus with learned positions and blocks of tokens in the encoder, `BigBirdPegasus...`.

    Random blocks and short rows are as in `BigBirdFamily`.
    """

    model_type = "bigbird_pegasus"
    systems = ("BigBird-Pegasus",)
    hub: tuple[tuple[str, int], ...] = (("google/bigbird-pegasus-large-arxiv", 577),)
    stated = change(
        SETTINGS,
        Key("attention_type", "kind", Literal["block_sparse", "original_full"], BLOCKS),
        Key("block_size", "block", Count, 64),
        Key("num_random_blocks", "random", Whole, 3),
        Key("use_bias", "biased", bool, False),
    )
    architectures = (
        *row_classes("BigBirdPegasusForSequenceClassification", classifier_rules),
        linear_class("BigBirdPegasusForQuestionAnswering", "span", "qa_outputs"),
        Architecture("BigBirdPegasusForConditionalGeneration", (HEAD,), SEQ2SEQ),
        Architecture("BigBirdPegasusModel", bare=True),
    )

    def backbone(self, numbers: Numbers) -> Sequence[NameRule]:
        positions = [
            same(f"backbone.{end}.position.table.weight", f"{end}.embed_positions.weight")
            for end in ("encoder", "decoder")
        ]
        above = pre_norm_rules("decoder", FINAL, bias=numbers.biased)
        return [*TABLES, *positions, *_encoder_rules(bias=numbers.biased), *above]

    def nodes(self, numbers: Numbers) -> Node:
        nodes = bart_nodes(
            numbers,
            positions=learned(numbers),
            embedding={"norm": None},
            residual="PreNorm",
            bias=numbers.biased,
        )
        return nodes | ({"pattern": block_pattern(numbers)} if numbers.block else {})

    def measure(self, config: Config, tensors: Weights, pad: int) -> Numbers:
        plain = super().measure(config, tensors, pad)
        cell = (((config["model"].get("encoder") or {}).get("stack") or {}).get("cells") or {}).get(
            "a"
        ) or {}
        return plain.but(biased=cell.get("bias", True))
