"""BART (Lewis et al., 2020, arXiv:1910.13461) as `transformers` publishes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NotRequired

from plmctl.core.errors import ConfigError
from plmctl.core.values import Count, Rate, Whole
from plmctl.interop.bert import ACTIVATIONS
from plmctl.interop.family import Architecture, Node, Numbers, PublishedConfig
from plmctl.interop.names import NameRule, linear, same, skip_rows
from plmctl.interop.stacks import (
    BIAS,
    HEAD,
    OUTPUT,
    TABLES,
    EncoderDecoderFamily,
    StackNumbers,
    encoder_decoder_nodes,
    read_start,
)

UNUSED = 2  # rows of the position tables that no token uses
NORM: Node = {"_target_": "plmctl.nn.norm.layer_norm", "_partial_": True, "eps": 1e-5}
SEQ2SEQ = [
    same(f"heads.{HEAD}.weight", OUTPUT, optional=True),
    NameRule(
        f"heads.{HEAD}.bias",
        (BIAS,),
        lambda found: found[0][0],
        lambda bias: [bias[None]],
        optional=True,
    ),
]


def layer_rules(end: str) -> list[NameRule]:
    """The rules for all layers of "encoder" or "decoder"."""
    ours, theirs = f"backbone.{end}.stack.blocks", f"{end}.layers.{{i}}"
    cross = [
        *linear(f"{ours}.c.{{i}}.cell.q", f"{theirs}.encoder_attn.q_proj"),
        *linear(
            f"{ours}.c.{{i}}.cell.kv",
            f"{theirs}.encoder_attn.k_proj",
            f"{theirs}.encoder_attn.v_proj",
        ),
        *linear(f"{ours}.c.{{i}}.cell.out", f"{theirs}.encoder_attn.out_proj"),
        *linear(f"{ours}.c.{{i}}.norm_sum", f"{theirs}.encoder_attn_layer_norm"),
    ]
    return [
        *linear(f"{ours}.a.{{i}}.cell.qkv", *(f"{theirs}.self_attn.{name}_proj" for name in "qkv")),
        *linear(f"{ours}.a.{{i}}.cell.out", f"{theirs}.self_attn.out_proj"),
        *linear(f"{ours}.a.{{i}}.norm_sum", f"{theirs}.self_attn_layer_norm"),
        *(cross if end == "decoder" else []),
        *linear(f"{ours}.f.{{i}}.cell.up", f"{theirs}.fc1"),
        *linear(f"{ours}.f.{{i}}.cell.down", f"{theirs}.fc2"),
        *linear(f"{ours}.f.{{i}}.norm_sum", f"{theirs}.final_layer_norm"),
    ]


def classifier_rules(head: str) -> list[NameRule]:
    """The rules for the layers of the classifier."""
    theirs = "classification_head"
    return linear(f"heads.{head}.dense", f"{theirs}.dense") + linear(
        f"heads.{head}.linear", f"{theirs}.out_proj"
    )


def embedding_rules(end: str) -> list[NameRule]:
    """The rules for positions, which begin at the third row of their table, and the norm."""
    position_rule = skip_rows(
        f"backbone.{end}.position.table.weight", f"{end}.embed_positions.weight", rows=UNUSED
    )
    return [position_rule, *linear(f"backbone.{end}.embedding.norm", f"{end}.layernorm_embedding")]


class BartConfig(PublishedConfig):
    """The settings of `config.json` that are read."""

    d_model: Count
    encoder_layers: Count
    encoder_attention_heads: Count
    encoder_ffn_dim: Count
    decoder_layers: Count
    decoder_attention_heads: Count
    decoder_ffn_dim: Count
    max_position_embeddings: Count
    dropout: NotRequired[Rate]
    attention_dropout: NotRequired[Rate]
    activation_dropout: NotRequired[Rate]
    activation_function: NotRequired[str]
    scale_embedding: NotRequired[bool]
    decoder_start_token_id: NotRequired[Whole | None]


class BartFamily(EncoderDecoderFamily):
    """Post-norm encoder and decoder with learned positions and a norm on the embeddings,
    `Bart...`.
    """

    model_type = "bart"
    systems: tuple[str, ...] = ("BART",)
    schema: type = BartConfig
    prefix = "model."
    rules: Sequence[NameRule] = (
        *TABLES,
        *(
            rule
            for end in ("encoder", "decoder")
            for rule in [*embedding_rules(end), *layer_rules(end)]
        ),
    )
    architectures: Sequence[Architecture] = (
        Architecture(
            "BartForSequenceClassification", ("score",), classifier_rules("score"), outputs=1
        ),
        Architecture("BartForSequenceClassification", ("class",), classifier_rules("class")),
        Architecture(
            "BartForQuestionAnswering", ("span",), linear("heads.span.linear", "qa_outputs")
        ),
        Architecture("BartForConditionalGeneration", (HEAD,), SEQ2SEQ),
        Architecture("BartModel", bare=True),
    )
    activations = ACTIVATIONS

    def numbers(self, settings: Mapping[str, Any]) -> StackNumbers:
        expected = {
            "normalize_before": False,
            "add_final_layer_norm": False,
            "normalize_embedding": True,
        }
        for key, allowed in expected.items():  # of old files
            if settings.get(key, allowed) != allowed:
                raise ConfigError(
                    f"config.json: {key}", settings[key], f"{allowed} (nothing else is supported)"
                )
        return read_stack_numbers(self, settings, start=2)

    def settings(self, numbers: Numbers) -> Node:
        return export_settings(self, numbers)

    def nodes(self, numbers: Numbers) -> Node:
        positions = {"_target_": "plmctl.nn.positions.Learned", "max_length": numbers.max_length}
        return post_norm_stacks(numbers, positions=positions, embedding={"norm": NORM})


def read_stack_numbers(
    family: EncoderDecoderFamily, settings: Mapping[str, Any], *, start: int
) -> StackNumbers:
    """The numbers of a `config.json` with BART's names."""
    return StackNumbers(
        num_layers=settings["encoder_layers"],
        width=settings["d_model"],
        num_heads=settings["encoder_attention_heads"],
        inner_width=settings["encoder_ffn_dim"],
        vocab_size=settings["vocab_size"],
        decoder_layers=settings["decoder_layers"],
        decoder_heads=settings["decoder_attention_heads"],
        decoder_inner_width=settings["decoder_ffn_dim"],
        max_length=settings["max_position_embeddings"],
        segments=0,
        dropout=settings.get("dropout", 0.1),
        attention_dropout=settings.get("attention_dropout", 0.0),
        inner_dropout=settings.get("activation_dropout", 0.0),
        activation=family.activation(
            settings.get("activation_function", "gelu"), "activation_function"
        ),
        eps=NORM["eps"],
        tied=settings.get("tie_word_embeddings", True),
        scaled=settings.get("scale_embedding", False),
        pad=settings.get("pad_token_id") or 0,
        start=read_start(settings, start),
    )


def export_settings(family: EncoderDecoderFamily, numbers: Numbers) -> Node:
    """A `config.json` with BART's names."""
    assert isinstance(numbers, StackNumbers)
    return {
        "model_type": family.model_type,
        "is_encoder_decoder": True,
        "vocab_size": numbers.vocab_size,
        "d_model": numbers.width,
        "encoder_layers": numbers.num_layers,
        "decoder_layers": numbers.decoder_layers,
        "encoder_attention_heads": numbers.num_heads,
        "decoder_attention_heads": numbers.decoder_heads,
        "encoder_ffn_dim": numbers.inner_width,
        "decoder_ffn_dim": numbers.decoder_inner_width,
        "activation_function": family.activation_name(numbers.activation),
        "dropout": numbers.dropout,
        "attention_dropout": numbers.attention_dropout,
        "activation_dropout": numbers.inner_dropout,
        "max_position_embeddings": numbers.max_length,
        "scale_embedding": numbers.scaled,
        "init_std": 0.02,
        "decoder_start_token_id": numbers.start,
        "pad_token_id": numbers.pad,
        "tie_word_embeddings": family.one_table(numbers),
    }


def post_norm_stacks(numbers: Numbers, *, positions: Node, embedding: Node) -> Node:
    """Two post-norm stacks with the same position scheme."""
    assert isinstance(numbers, StackNumbers)
    return encoder_decoder_nodes(
        numbers,
        embedding={"scaled": numbers.scaled, **embedding},
        positions=(positions, positions),
        attention={"dropout": numbers.attention_dropout},
        inner={
            "_target_": "plmctl.nn.cells.feedforward.FeedForward",
            "activation": numbers.activation,
            "dropout": numbers.inner_dropout,
        },
        residual={
            "_target_": "plmctl.nn.residual.PostNorm",
            "dropout": numbers.dropout,
            "norm": NORM,
        },
        initializer={"_target_": "plmctl.nn.init.normal", "std": 0.02},
    )
