"""T5 (Raffel et al., 2020, arXiv:1910.10683), 1.0 and 1.1, as `transformers` publishes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from plmctl.core.values import Count, Number, Rate
from plmctl.interop.bart import classifier_rules
from plmctl.interop.bert import ACTIVATIONS
from plmctl.interop.family import Architecture, Family, Node, linear_class, row_classes
from plmctl.interop.names import NameRule, Tensors, Weights, linear, maps, same
from plmctl.interop.settings import (
    TIED,
    VOCAB,
    Config,
    Key,
    Numbers,
    Settings,
    Written,
    activation,
    pad,
)
from plmctl.interop.stacks import (
    FORCED,
    HEAD,
    OUTPUT,
    SHARED,
    START,
    TABLES,
    EncoderDecoderFamily,
    encoder_decoder_nodes,
    normalize_ends,
    unusual_width,
)

# the prefix of the backbone in the class whose name ends so
INSIDE, ROWS, TAGS = "transformer.", "ForSequenceClassification", "ForTokenClassification"
GATED, POSITION = "plmctl.nn.cells.glu.GLU", "plmctl.nn.positions.RelativeBuckets"
BELOW, ABOVE = "backbone.encoder.", "backbone.decoder."
STATES = "plmctl.heads.features.EncoderStates"
PLAIN = "plmctl.nn.cells.feedforward.FeedForward"
PROJECTIONS = {  # theirs -> (the cell between the two maps, its activation)
    "relu": (PLAIN, "relu"),
    **{name: (PLAIN, ours) for name, ours in ACTIVATIONS.items()},
    "gated-gelu": (GATED, "gelu_tanh"),  # the one name that means another function there
    **{f"gated-{name}": (GATED, ours) for name, ours in ACTIVATIONS.items() if name != "gelu"},
}


def layer_rules(end: str, *, gated: bool, shared: bool = True) -> list[NameRule]:
    """The rules of "encoder" or "decoder" without its table of tokens; `shared`: the first layer's
    table of relative positions serves all layers.
    """
    ours, block = f"backbone.{end}.stack.blocks", f"{end}.block.{{i}}.layer"
    last = 2 if end == "decoder" else 1
    inner = f"{block}.{last}.DenseReluDense"
    own = {"gate": "wi_0", "up": "wi_1", "down": "wo"} if gated else {"up": "wi", "down": "wo"}
    flat: dict[str, Any] = {"bias": False}
    attention = f"{block}.0.SelfAttention"
    across = f"{block}.1.EncDecAttention"
    cross = [
        *maps(f"{ours}.c.{{i}}.cell", across, {"q": "q", "kv": "k v", "out": "o"}, **flat),
        *linear(f"{ours}.c.{{i}}.norm_in", f"{block}.1.layer_norm", **flat),
    ]
    own_table = "position.table.weight" if shared else "position.by_layer.{i}.table.weight"
    first = f"{end}.block.0.layer.0.SelfAttention" if shared else attention
    return [
        same(f"backbone.{end}.{own_table}", f"{first}.relative_attention_bias.weight"),
        *maps(f"{ours}.a.{{i}}.cell", attention, {"qkv": "q k v", "out": "o"}, **flat),
        *linear(f"{ours}.a.{{i}}.norm_in", f"{block}.0.layer_norm", **flat),
        *maps(f"{ours}.f.{{i}}.cell", inner, own, **flat),
        *linear(f"{ours}.f.{{i}}.norm_in", f"{block}.{last}.layer_norm", **flat),
        *linear(f"backbone.{end}.stack.final_norm", f"{end}.final_layer_norm", **flat),
        *(cross if end == "decoder" else []),
    ]


SETTINGS: Settings = (
    Written("is_encoder_decoder", True),
    VOCAB,
    Key("d_model", "width", Count),
    Key("d_ff", "inner_width", Count),
    Key("d_kv", "head_width", Count),
    Key("num_layers", "num_layers", Count),
    Key("num_decoder_layers", "decoder_layers", Count | None, None),
    Key("num_heads", "num_heads", Count),
    Key("relative_attention_num_buckets", "buckets", Count, 32),
    Key("relative_attention_max_distance", "max_distance", Count, 128),
    Key("dropout_rate", "dropout", Rate, 0.1),
    Key("layer_norm_epsilon", "eps", Number, 1e-6),
    activation("feed_forward_proj", {name: name for name in PROJECTIONS}),
    Written("initializer_factor", 1.0),
    TIED,
    pad(written=True),
    START,
    FORCED,
    Key("scale_decoder_outputs", "scaled", bool, None, written=False),
)


def t5_classes(name: str) -> tuple[Architecture, ...]:
    """The classes of T5 or a relative, by the beginning of their names."""
    output = same(f"heads.{HEAD}.weight", OUTPUT, optional=True)
    return (
        *row_classes(name + ROWS, classifier_rules),
        linear_class(f"{name}ForQuestionAnswering", "span", "qa_outputs"),
        Architecture(f"{name}ForConditionalGeneration", (HEAD,), [output]),
        Architecture(f"{name}Model", bare=True),
    )


def encoder_classes(name: str) -> tuple[Architecture, ...]:
    """The classes of T5 or a relative that have its encoder alone."""
    tags = linear_class(f"{name}{TAGS}", "tag", "classifier")
    return tags, Architecture(f"{name}EncoderModel", bare=True)


class T5Family(EncoderDecoderFamily):
    """Pre-norm encoder and decoder without biases, with numbers for ranges of distances, `T5...`.

    States are multiplied by W^-0.5 before the output table unless `config.json` unties it. Version
    1.1 unties it: it has a separate output table and gated feed-forward cells.
    """

    model_type = "t5"
    systems: tuple[str, ...] = ("T5",)
    recipes: tuple[str, ...] = ("t5",)
    hub: tuple[tuple[str, int], ...] = (
        ("google-t5/t5-small", 60),
        ("google-t5/t5-base", 220),
        ("google-t5/t5-large", 770),
        ("google/t5-v1_1-base", 248),
    )
    stated = SETTINGS
    remedies: Mapping[str, str] = {
        "tag": "fine-tune with features=encoder, as its published taggers read the encoder"
    }
    ignored: frozenset[str] = frozenset({"dense_act_fn", "is_gated_act", "n_positions"})
    prefix = ""
    architectures = t5_classes("T5")

    def numbers(self, settings: Config) -> Numbers:
        numbers = super().numbers(settings)
        return numbers.but(
            head_width=unusual_width(numbers.head_width, numbers),
            decoder_layers=numbers.decoder_layers or numbers.num_layers,
            decoder_heads=numbers.num_heads,
            decoder_inner_width=numbers.inner_width,
            attention_dropout=numbers.dropout,
            inner_dropout=numbers.dropout,
            scaled=numbers.tied if numbers.scaled is None else numbers.scaled,
        )

    def settings(self, numbers: Numbers) -> Node:
        return super().settings(
            numbers.but(head_width=numbers.head_width or numbers.width // numbers.num_heads)
        )

    def backbone(self, numbers: Numbers) -> Sequence[NameRule]:
        gated = PROJECTIONS[numbers.activation][0] == GATED
        return [*TABLES, *layer_rules("encoder", gated=gated), *layer_rules("decoder", gated=gated)]

    def position(self, numbers: Numbers, *, bidirectional: bool) -> Node:
        """The node of the positions of the encoder, which are bidirectional, or of the decoder."""
        return {
            "_target_": POSITION,
            "buckets": numbers.buckets,
            "max_distance": numbers.max_distance,
            "num_heads": numbers.num_heads,
            "bidirectional": bidirectional,
        }

    def nodes(self, numbers: Numbers) -> Node:
        cell, activation = PROJECTIONS.get(numbers.activation, PROJECTIONS["relu"])
        norm: Node = {"_target_": "plmctl.nn.norm.rms_norm", "_partial_": True, "eps": numbers.eps}
        attention = {
            "dropout": numbers.attention_dropout,
            "head_width": numbers.head_width,
            "bias": False,
            "scores": "dot",
        }
        numbers = numbers.but(
            decoder_heads=numbers.num_heads, decoder_inner_width=numbers.inner_width, shared=True
        )
        return encoder_decoder_nodes(
            numbers,
            embedding={"norm": None},
            positions=(
                self.position(numbers, bidirectional=True),
                self.position(numbers, bidirectional=False),
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
        own = {"scaled": numbers.scaled and numbers.tied, "bias": False}
        return super().head(name, numbers, outputs) | (own if name == HEAD else {})

    def measure(self, config: Config, tensors: Weights, pad: int) -> Numbers:
        numbers = super().measure(config, tensors, pad)
        encoder, position = config["model"].get("encoder") or {}, config.get("position") or {}
        inner = ((encoder.get("stack") or {}).get("cells") or {}).get("f") or {}
        kind = (inner.get("_target_"), inner.get("activation"))
        head = (config.get("heads") or {}).get(HEAD) or {}
        return numbers.but(
            activation=next((name for name, cell in PROJECTIONS.items() if cell == kind), "relu"),
            scaled=head.get("scaled", True),
            buckets=position.get("buckets", 32),
            max_distance=position.get("max_distance", 128),
        )

    def find_differences(self, config: Config, numbers: Numbers) -> list[str]:
        tables = [] if numbers.shared else ["model.tied=False (published: True)"]
        return super().find_differences(config, numbers) + tables

    def adapt(self, numbers: Numbers, tensors: Tensors) -> tuple[Numbers, Tensors]:
        return super().adapt(
            numbers, {name.removeprefix(INSIDE): tensor for name, tensor in tensors.items()}
        )

    def complete(self, tensors: Tensors, numbers: Numbers, architecture: Architecture) -> Tensors:
        if architecture.name.endswith((ROWS, TAGS)):
            return {
                name if name in architecture.tensors else INSIDE + name: tensor
                for name, tensor in tensors.items()
            }
        if numbers.scaled or HEAD not in architecture.heads:
            return tensors
        return {OUTPUT: tensors[SHARED].clone()} | tensors

    def one_table(self, numbers: Numbers) -> bool:
        return bool(numbers.scaled)


class EncoderAlone(T5Family):
    """The encoder of T5 or a relative without its decoder, for heads of tokens."""

    def backbone(self, numbers: Numbers) -> Sequence[NameRule]:
        return [
            replace(rule, ours=rule.ours.replace(BELOW, "backbone.", 1))
            for rule in super().backbone(numbers)
            if rule.ours.startswith(BELOW)
        ]

    def nodes(self, numbers: Numbers) -> Node:
        nodes = super().nodes(numbers)
        both = nodes["model"]
        return {**nodes, "model": {**both["encoder"], "initializer": both["initializer"]}}

    def measure(self, config: Config, tensors: Weights, pad: int) -> Numbers:
        numbers = super().measure({**config, "model": {"encoder": config["model"]}}, tensors, pad)
        return numbers.but(decoder_layers=numbers.num_layers)

    def find_differences(self, config: Config, numbers: Numbers) -> list[str]:
        model = normalize_ends({"encoder": config["model"]}, numbers.width)["encoder"]
        return Family.find_differences(self, {**config, "model": model}, numbers)

    def simplify(self, config: Config, tensors: Weights) -> tuple[Config, Weights, list[str]]:
        """Without the decoder where the heads of tokens read the encoder, `features=encoder`."""
        model, heads = config["model"], dict(config.get("heads") or {})
        states = heads.pop("features", None) or {}
        relative = (config.get("position") or {}).get("_target_", "").startswith(POSITION)
        if not relative or states.get("_target_") != STATES or {*heads} - {*self.heads}:
            return config, tensors, []
        kept = {
            name.replace(BELOW, "backbone.", 1): tensor
            for name, tensor in tensors.items()
            if not name.startswith(ABOVE)
        }
        alone = {**model["encoder"], "initializer": model["initializer"]}
        return {**config, "model": alone, "heads": heads}, kept, [ABOVE.removesuffix(".")]


class T5EncoderFamily(EncoderAlone):
    """T5's encoder alone."""

    architectures = encoder_classes("T5")
