"""T5 (Raffel et al., 2020, arXiv:1910.10683), 1.0 and 1.1, as `transformers` publishes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NotRequired

from torch import Tensor

from plmctl.core.values import Count, Number, Rate, Whole
from plmctl.interop.bart import classifier_rules
from plmctl.interop.family import Architecture, Node, Numbers, PublishedConfig
from plmctl.interop.names import NameRule, Tensors, linear, same
from plmctl.interop.stacks import (
    HEAD,
    OUTPUT,
    SHARED,
    TABLES,
    EncoderDecoderFamily,
    StackNumbers,
    encoder_decoder_nodes,
    read_start,
)

# the class whose backbone has a prefix
INSIDE, ROWS = "transformer.", "T5ForSequenceClassification"
GATED, POSITION = "plmctl.nn.cells.glu.GLU", "plmctl.nn.positions.RelativeBuckets"
PROJECTIONS = {  # theirs -> (the cell between the two maps, its activation)
    "relu": ("plmctl.nn.cells.feedforward.FeedForward", "relu"),
    "gelu": ("plmctl.nn.cells.feedforward.FeedForward", "gelu"),
    "gated-gelu": (GATED, "gelu_tanh"),
    "gated-silu": (GATED, "silu"),
    "gated-relu": (GATED, "relu"),
}


def layer_rules(end: str, *, gated: bool) -> list[NameRule]:
    """The rules of "encoder" or "decoder" without its table of tokens; the first layer's table of
    relative positions serves all layers.
    """
    ours, block = f"backbone.{end}.stack.blocks", f"{end}.block.{{i}}.layer"
    last = 2 if end == "decoder" else 1
    inner = f"{block}.{last}.DenseReluDense"
    maps = {"gate": "wi_0", "up": "wi_1", "down": "wo"} if gated else {"up": "wi", "down": "wo"}
    rules = [
        same(
            f"backbone.{end}.position.table.weight",
            f"{end}.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
        ),
        *linear(
            f"{ours}.a.{{i}}.cell.qkv",
            *(f"{block}.0.SelfAttention.{name}" for name in "qkv"),
            bias=False,
        ),
        *linear(f"{ours}.a.{{i}}.cell.out", f"{block}.0.SelfAttention.o", bias=False),
        *linear(f"{ours}.a.{{i}}.norm_in", f"{block}.0.layer_norm", bias=False),
        *(
            rule
            for own, name in maps.items()
            for rule in linear(f"{ours}.f.{{i}}.cell.{own}", f"{inner}.{name}", bias=False)
        ),
        *linear(f"{ours}.f.{{i}}.norm_in", f"{block}.{last}.layer_norm", bias=False),
        *linear(f"backbone.{end}.stack.final_norm", f"{end}.final_layer_norm", bias=False),
    ]
    cross = [
        *linear(f"{ours}.c.{{i}}.cell.q", f"{block}.1.EncDecAttention.q", bias=False),
        *linear(
            f"{ours}.c.{{i}}.cell.kv",
            f"{block}.1.EncDecAttention.k",
            f"{block}.1.EncDecAttention.v",
            bias=False,
        ),
        *linear(f"{ours}.c.{{i}}.cell.out", f"{block}.1.EncDecAttention.o", bias=False),
        *linear(f"{ours}.c.{{i}}.norm_in", f"{block}.1.layer_norm", bias=False),
    ]
    return rules + (cross if end == "decoder" else [])


class T5Config(PublishedConfig):
    """The settings of `config.json` that are read."""

    d_model: Count
    d_ff: Count
    d_kv: Count
    num_layers: Count
    num_heads: Count
    num_decoder_layers: NotRequired[Count | None]
    dropout_rate: NotRequired[Rate]
    feed_forward_proj: NotRequired[str]
    layer_norm_epsilon: NotRequired[Number]
    relative_attention_num_buckets: NotRequired[Count]
    relative_attention_max_distance: NotRequired[Count]
    scale_decoder_outputs: NotRequired[bool]
    decoder_start_token_id: NotRequired[Whole | None]


class T5Family(EncoderDecoderFamily):
    """Pre-norm encoder and decoder without biases, with numbers for ranges of distances, `T5...`.

    States are multiplied by W^-0.5 before the output table unless `config.json` unties it, as in
    1.1, which has a separate output table and gated feed-forward cells.
    """

    model_type = "t5"
    systems = ("T5",)
    schema = T5Config
    prefix = ""
    architectures = (
        Architecture(ROWS, ("score",), classifier_rules("score"), outputs=1),
        Architecture(ROWS, ("class",), classifier_rules("class")),
        Architecture(
            "T5ForQuestionAnswering", ("span",), linear("heads.span.linear", "qa_outputs")
        ),
        Architecture(
            "T5ForConditionalGeneration",
            (HEAD,),
            [same(f"heads.{HEAD}.weight", OUTPUT, optional=True)],
        ),
        Architecture("T5Model", bare=True),
    )
    activations: Mapping[str, str] = {name: name for name in PROJECTIONS}

    def numbers(self, settings: Mapping[str, Any]) -> StackNumbers:
        tied, rate = settings.get("tie_word_embeddings", True), settings.get("dropout_rate", 0.1)
        depth, heads, inner = settings["num_layers"], settings["num_heads"], settings["d_ff"]
        pad = settings.get("pad_token_id") or 0
        return StackNumbers(
            num_layers=depth,
            width=settings["d_model"],
            num_heads=heads,
            inner_width=inner,
            head_width=(
                None if settings["d_kv"] * heads == settings["d_model"] else settings["d_kv"]
            ),
            decoder_layers=settings.get("num_decoder_layers") or depth,
            decoder_heads=heads,
            decoder_inner_width=inner,
            vocab_size=settings["vocab_size"],
            max_length=0,
            segments=0,
            dropout=rate,
            attention_dropout=rate,
            inner_dropout=rate,
            activation=self.activation(
                settings.get("feed_forward_proj", "relu"), "feed_forward_proj"
            ),
            eps=settings.get("layer_norm_epsilon", 1e-6),
            tied=tied,
            scaled=settings.get("scale_decoder_outputs", tied),
            buckets=settings.get("relative_attention_num_buckets", 32),
            max_distance=settings.get("relative_attention_max_distance", 128),
            pad=pad,
            start=read_start(settings, pad),
        )

    def settings(self, numbers: Numbers) -> Node:
        assert isinstance(numbers, StackNumbers)
        return {
            "model_type": self.model_type,
            "is_encoder_decoder": True,
            "vocab_size": numbers.vocab_size,
            "d_model": numbers.width,
            "d_ff": numbers.inner_width,
            "d_kv": numbers.head_width or numbers.width // numbers.num_heads,
            "num_layers": numbers.num_layers,
            "num_decoder_layers": numbers.decoder_layers,
            "num_heads": numbers.num_heads,
            "relative_attention_num_buckets": numbers.buckets,
            "relative_attention_max_distance": numbers.max_distance,
            "dropout_rate": numbers.dropout,
            "layer_norm_epsilon": numbers.eps,
            "feed_forward_proj": numbers.activation,
            "initializer_factor": 1.0,
            "tie_word_embeddings": numbers.scaled,
            "pad_token_id": numbers.pad,
            "decoder_start_token_id": numbers.start,
        }

    def backbone(self, numbers: Numbers) -> Sequence[NameRule]:
        gated = PROJECTIONS[numbers.activation][0] == GATED
        return [*TABLES, *layer_rules("encoder", gated=gated), *layer_rules("decoder", gated=gated)]

    def nodes(self, numbers: Numbers) -> Node:
        assert isinstance(numbers, StackNumbers)
        cell, activation = PROJECTIONS.get(numbers.activation, PROJECTIONS["relu"])
        buckets = {
            "_target_": POSITION,
            "buckets": numbers.buckets,
            "max_distance": numbers.max_distance,
        }
        norm: Node = {"_target_": "plmctl.nn.norm.rms_norm", "_partial_": True, "eps": numbers.eps}
        attention = {
            "dropout": numbers.attention_dropout,
            "head_width": numbers.head_width,
            "bias": False,
            "scores": "dot",
        }
        numbers = replace(
            numbers,
            decoder_heads=numbers.num_heads,
            decoder_inner_width=numbers.inner_width,
            shared=True,
        )
        return encoder_decoder_nodes(
            numbers,
            embedding={"norm": None},
            positions=(
                {**buckets, "num_heads": numbers.num_heads, "bidirectional": True},
                {**buckets, "num_heads": numbers.num_heads, "bidirectional": False},
            ),
            attention=attention,
            inner={
                "_target_": cell,
                "activation": activation,
                "dropout": numbers.inner_dropout,
                "bias": False,
            },
            residual={
                "_target_": "plmctl.nn.residual.PreNorm",
                "dropout": numbers.dropout,
                "norm": norm,
            },
            initializer={"_target_": "plmctl.nn.init.fan_in", "std": 1.0},
        )

    def head(self, name: str, numbers: Numbers, outputs: int) -> Node:
        assert isinstance(numbers, StackNumbers)
        own = {"scaled": numbers.scaled and numbers.tied, "bias": False}
        return super().head(name, numbers, outputs) | (own if name == HEAD else {})

    def measure(
        self, config: Mapping[str, Any], tensors: Mapping[str, Tensor], pad: int
    ) -> StackNumbers:
        numbers = super().measure(config, tensors, pad)
        encoder, position = config["model"].get("encoder") or {}, config.get("position") or {}
        inner = ((encoder.get("stack") or {}).get("cells") or {}).get("f") or {}
        kind = (inner.get("_target_"), inner.get("activation"))
        head = (config.get("heads") or {}).get(HEAD) or {}
        return replace(
            numbers,
            activation=next((name for name, cell in PROJECTIONS.items() if cell == kind), "relu"),
            scaled=head.get("scaled", True),
            buckets=position.get("buckets", 32),
            max_distance=position.get("max_distance", 128),
        )

    def find_differences(self, config: Mapping[str, Any], numbers: Numbers) -> list[str]:
        assert isinstance(numbers, StackNumbers)
        tables = [] if numbers.shared else ["model.tied=False (published: True)"]
        return super().find_differences(config, numbers) + tables

    def adapt(self, numbers: Numbers, tensors: Tensors) -> tuple[Numbers, Tensors]:
        return super().adapt(
            numbers, {name.removeprefix(INSIDE): tensor for name, tensor in tensors.items()}
        )

    def complete(self, tensors: Tensors, numbers: Numbers, architecture: Architecture) -> Tensors:
        assert isinstance(numbers, StackNumbers)
        if architecture.name == ROWS:
            return {
                name if name in architecture.tensors else INSIDE + name: tensor
                for name, tensor in tensors.items()
            }
        if numbers.scaled or HEAD not in architecture.heads:
            return tensors
        return {OUTPUT: tensors[SHARED].clone()} | tensors

    def one_table(self, numbers: StackNumbers) -> bool:
        return numbers.scaled
