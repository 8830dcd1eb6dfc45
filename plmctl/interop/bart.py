"""BART (Lewis et al., 2020, arXiv:1910.13461) as `transformers` publishes it."""

from __future__ import annotations

from collections.abc import Sequence

from plmctl.core.values import Count, Rate
from plmctl.interop.bert import ACTIVATIONS
from plmctl.interop.family import Architecture, Node, linear_class, row_classes
from plmctl.interop.names import NameRule, linear, maps, same, skip_rows
from plmctl.interop.settings import (
    TIED,
    VOCAB,
    Key,
    Numbers,
    Only,
    Settings,
    Written,
    activation,
    change,
    pad,
)
from plmctl.interop.stacks import (
    BIAS,
    FORCED,
    HEAD,
    OUTPUT,
    START,
    TABLES,
    EncoderDecoderFamily,
    encoder_decoder_nodes,
)

MAPS = {"cell.up": "fc1", "cell.down": "fc2"}
INNER = {**MAPS, "norm_sum": "final_layer_norm"}
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


def layer_rules(end: str, *, norm: str = "norm_sum", bias: bool = True) -> list[NameRule]:
    """The rules for all layers of "encoder" or "decoder".

    Args:
        end: The stack.
        norm: Our name of the norms: "norm_sum", after each sum, or "norm_in".
        bias: Whether the maps of attention have biases.
    """
    ours, theirs = f"backbone.{end}.stack.blocks", f"{end}.layers.{{i}}"
    qkv, out = "q_proj k_proj v_proj", {"cell.out": "out_proj"}
    cross = [
        *maps(
            f"{ours}.c.{{i}}",
            f"{theirs}.encoder_attn",
            {"cell.q": "q_proj", "cell.kv": "k_proj v_proj", **out},
            bias=bias,
        ),
        *linear(f"{ours}.c.{{i}}.{norm}", f"{theirs}.encoder_attn_layer_norm"),
    ]
    return [
        *maps(f"{ours}.a.{{i}}", f"{theirs}.self_attn", {"cell.qkv": qkv, **out}, bias=bias),
        *linear(f"{ours}.a.{{i}}.{norm}", f"{theirs}.self_attn_layer_norm"),
        *(cross if end == "decoder" else []),
        *maps(f"{ours}.f.{{i}}", theirs, MAPS),
        *linear(f"{ours}.f.{{i}}.{norm}", f"{theirs}.final_layer_norm"),
    ]


def classifier_rules(head: str) -> list[NameRule]:
    """The rules for the layers of the classifier."""
    return maps(f"heads.{head}", "classification_head", {"dense": "dense", "linear": "out_proj"})


def embedding_rules(end: str) -> list[NameRule]:
    """The rules for positions, which begin at the third row of their table, and the norm."""
    position_rule = skip_rows(
        f"backbone.{end}.position.table.weight", f"{end}.embed_positions.weight", rows=UNUSED
    )
    return [position_rule, *linear(f"backbone.{end}.embedding.norm", f"{end}.layernorm_embedding")]


SETTINGS: Settings = (
    Written("is_encoder_decoder", True),
    VOCAB,
    Key("d_model", "width", Count),
    Key("encoder_layers", "num_layers", Count),
    Key("decoder_layers", "decoder_layers", Count),
    Key("encoder_attention_heads", "num_heads", Count),
    Key("decoder_attention_heads", "decoder_heads", Count),
    Key("encoder_ffn_dim", "inner_width", Count),
    Key("decoder_ffn_dim", "decoder_inner_width", Count),
    activation("activation_function", {**ACTIVATIONS, "swish": "silu"}),
    Key("dropout", "dropout", Rate, 0.1),
    Key("attention_dropout", "attention_dropout", Rate, 0.0),
    Key("activation_dropout", "inner_dropout", Rate, 0.0),
    Key("max_position_embeddings", "max_length", Count),
    Key("scale_embedding", "scaled", bool, False),
    Written("init_std", 0.02),
    START,
    FORCED,
    pad(written=True),
    TIED,
)


class BartFamily(EncoderDecoderFamily):
    """Post-norm encoder and decoder with learned positions and a norm on the embeddings,
    `Bart...`.
    """

    model_type = "bart"
    systems: tuple[str, ...] = ("BART",)
    recipes: tuple[str, ...] = ("bart",)
    hub: tuple[tuple[str, int], ...] = (("facebook/bart-base", 140), ("facebook/bart-large", 406))
    stated: Settings = change(
        SETTINGS,
        Only("normalize_before", False),  # setting of old files, as the next two
        Only("add_final_layer_norm", False),
        Only("normalize_embedding", True),
    )
    first_token: int | str | None = 2
    ignored: frozenset[str] = frozenset({"num_hidden_layers", "extra_pos_embeddings"})
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
        *row_classes("BartForSequenceClassification", classifier_rules),
        linear_class("BartForQuestionAnswering", "span", "qa_outputs"),
        Architecture("BartForConditionalGeneration", (HEAD,), SEQ2SEQ),
        Architecture("BartModel", bare=True),
    )

    def nodes(self, numbers: Numbers) -> Node:
        return bart_nodes(numbers, positions=learned(numbers), embedding={"norm": NORM})


def learned(numbers: Numbers) -> Node:
    """The node of learned positions."""
    return {"_target_": "plmctl.nn.positions.Learned", "max_length": numbers.max_length}


def bart_nodes(
    numbers: Numbers,
    *,
    positions: Node,
    embedding: Node,
    residual: str = "PostNorm",
    bias: bool = True,
) -> Node:
    """Two stacks with the same position scheme; `residual` names the kind of their blocks, `bias`
    says whether the maps of attention have one.
    """
    return encoder_decoder_nodes(
        numbers,
        embedding={"scaled": numbers.scaled, **embedding},
        positions=(positions, positions),
        attention={"dropout": numbers.attention_dropout, **({} if bias else {"bias": False})},
        inner={
            "_target_": "plmctl.nn.cells.feedforward.FeedForward",
            "activation": numbers.activation,
            "dropout": numbers.inner_dropout,
        },
        residual={
            "_target_": f"plmctl.nn.residual.{residual}",
            "dropout": numbers.dropout,
            "norm": NORM,
        },
        initializer={"_target_": "plmctl.nn.init.normal", "std": 0.02},
    )
