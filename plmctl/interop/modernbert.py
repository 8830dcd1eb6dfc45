"""ModernBERT (Warner et al., 2024, arXiv:2412.13663) as `transformers` publishes it; also Ettin's
encoders and mmBERT.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from plmctl.core.errors import ConfigError, nearest
from plmctl.core.values import Count, Number, Rate
from plmctl.interop.bert import ACTIVATIONS, encoder_nodes
from plmctl.interop.family import Architecture, Family, Node, lm_head
from plmctl.interop.names import NameRule, Weights, cut, linear, same
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

PATTERN, FULL = "plmctl.attention.patterns.window.Window", "plmctl.attention.patterns.base.Full"
ROTARY, GATED = "plmctl.nn.positions.Rotary", "plmctl.nn.cells.glu.GLU"
GLOBAL, LOCAL = "full_attention", "sliding_attention"  # kinds of layers
POOLINGS = {"cls": None, "mean": "mean"}  # theirs -> ours
FIRST_NORM = "layers.0.attn_norm.weight"  # no file has it
OURS = "backbone.stack.blocks"
TIES = {"decoder.weight": "embeddings.tok_embeddings.weight"}


def free_bias(ours: str, theirs: str) -> list[NameRule]:
    """The rules of a linear map or norm that may have a bias."""
    bias = same(f"{ours}.bias", f"{theirs}.bias", optional=True)
    return [same(f"{ours}.weight", f"{theirs}.weight"), bias]


def cut_gates(ours: str, theirs: str) -> list[NameRule]:
    """The rules of one linear map that gives gate and up, which may have a bias."""
    names = [f"{ours}.gate", f"{ours}.up"]
    return [
        *cut(f"{theirs}.weight", *(f"{name}.weight" for name in names)),
        *cut(f"{theirs}.bias", *(f"{name}.bias" for name in names), optional=True),
    ]


def head_rules(head: str) -> list[NameRule]:
    """The rules of the layer that every head has."""
    return [
        *free_bias(f"heads.{head}.dense", "head.dense"),
        *free_bias(f"heads.{head}.norm", "head.norm"),
    ]


def classifier_rules(head: str) -> list[NameRule]:
    """The rules of a classifier of rows, tokens or spans."""
    return [*head_rules(head), *linear(f"heads.{head}.linear", "classifier")]


MLM = [
    *head_rules("mlm"),
    same("heads.mlm.weight", "decoder.weight", optional=True),
    same("heads.mlm.bias", "decoder.bias", optional=True),
]


# rows of any length can be read, so no part of ours has it
LONGEST = Key("max_position_embeddings", "longest", Count, 8192)


def find_longest(config: Config, default: int = 8192) -> int:
    """The longest row that the `config.json` of a model stated."""
    return int((config.get("origin") or {}).get("longest", default))


def find_activation(theirs: str) -> str:
    """Our name of the activation of heads."""
    if theirs not in ACTIVATIONS:
        allowed = f"one of {', '.join(ACTIVATIONS)}{nearest(theirs, ACTIVATIONS)}"
        raise ConfigError("config.json: classifier_activation", theirs, allowed)
    return ACTIVATIONS[theirs]


def write_activation(ours: str) -> str:
    """The published name of an activation."""
    return next(theirs for theirs, name in ACTIVATIONS.items() if name == ours)


SETTINGS: Settings = (
    VOCAB,
    Key("hidden_size", "width", Count),
    Key("num_hidden_layers", "num_layers", Count),
    Key("num_attention_heads", "num_heads", Count),
    Key("intermediate_size", "inner_width", Count),
    activation("hidden_activation", ACTIVATIONS),
    Key("embedding_dropout", "dropout", Rate, 0.0),
    Key("attention_dropout", "attention_dropout", Rate, 0.0),
    Key("mlp_dropout", "inner_dropout", Rate, 0.0),
    Key("classifier_dropout", "head_dropout", Rate, 0.0),
    Key("norm_eps", "eps", Number, 1e-5),
    Key("norm_bias", "norm_bias", bool, False),
    Key("attention_bias", "attention_bias", bool, False),
    Key("mlp_bias", "inner_bias", bool, False),
    Key("decoder_bias", "decoder_bias", bool, True),
    Key("classifier_bias", "head_bias", bool, False),
    Key(
        "classifier_activation",
        "head_activation",
        str,
        "gelu",
        read=find_activation,
        write=write_activation,
    ),
    Key("classifier_pooling", "pooling", str, "cls"),
    Key("local_attention", "window", Count, 128),
    Key("layer_types", "kinds", list[str] | None, None),
    Key("global_attn_every_n_layers", "every", Count | None, None, written=False),
    Key("rope_parameters", "turns", dict[str, Any] | None, None),
    Key("global_rope_theta", "global_base", Number | None, 160000.0),
    Key("local_rope_theta", "local_base", Number | None, 10000.0),
    LONGEST,
    Written("initializer_range", 0.02),
    TIED,
    replace(pad(written=True), default=50283),
)


class ModernBertFamily(Family):
    """Pre-norm encoder with rotary positions, in which some layers see all tokens and the others a
    window, with a base of positions for each kind.

    Files of before transformers 5 state every how many layers a global one comes, and two bases.
    Differs in training: dropout of attention is that of its probabilities alone.
    """

    model_type = "modernbert"
    systems: tuple[str, ...] = ("ModernBERT", "Ettin", "mmBERT")
    recipes: tuple[str, ...] = ("modernbert",)
    hub: tuple[tuple[str, int], ...] = (
        ("answerdotai/ModernBERT-base", 149),
        ("answerdotai/ModernBERT-large", 395),
        ("jhu-clsp/ettin-encoder-17m", 17),
        ("jhu-clsp/ettin-encoder-150m", 150),
        ("jhu-clsp/mmBERT-base", 307),
    )
    stated = SETTINGS
    ignored: frozenset[str] = frozenset({"sparse_pred_ignore_index"})
    prefix = "model."
    rules: Sequence[NameRule] = (
        same("backbone.embedding.token.weight", "embeddings.tok_embeddings.weight"),
        *free_bias("backbone.embedding.norm", "embeddings.norm"),
        *free_bias(f"{OURS}.a.{{i}}.norm_in", "layers.{i}.attn_norm"),
        *free_bias(f"{OURS}.a.{{i}}.cell.qkv", "layers.{i}.attn.Wqkv"),
        *free_bias(f"{OURS}.a.{{i}}.cell.out", "layers.{i}.attn.Wo"),
        *free_bias(f"{OURS}.f.{{i}}.norm_in", "layers.{i}.mlp_norm"),
        *cut_gates(f"{OURS}.f.{{i}}.cell", "layers.{i}.mlp.Wi"),
        *free_bias(f"{OURS}.f.{{i}}.cell.down", "layers.{i}.mlp.Wo"),
        *free_bias("backbone.stack.final_norm", "final_norm"),
    )
    architectures: Sequence[Architecture] = (
        *(
            Architecture(
                "ModernBertForSequenceClassification",
                (head,),
                classifier_rules(head),
                outputs=outputs,
            )
            for head, outputs in (("score", 1), ("class", None))
        ),
        Architecture(
            "ModernBertForMultipleChoice", ("choice",), classifier_rules("choice"), outputs=1
        ),
        Architecture("ModernBertForTokenClassification", ("tag",), classifier_rules("tag")),
        Architecture("ModernBertForQuestionAnswering", ("span",), classifier_rules("span")),
        Architecture("ModernBertForMaskedLM", ("mlm",), MLM),
        Architecture("ModernBertModel", bare=True),
    )
    ties = TIES

    def numbers(self, settings: Config) -> Numbers:
        numbers = super().numbers(settings)
        if numbers.pooling not in POOLINGS:
            allowed = f"one of {', '.join(POOLINGS)}{nearest(numbers.pooling, POOLINGS)}"
            raise ConfigError("config.json: classifier_pooling", numbers.pooling, allowed)
        kinds = numbers.kinds or [
            LOCAL if layer % (numbers.every or 3) else GLOBAL for layer in range(numbers.num_layers)
        ]
        if len(kinds) != numbers.num_layers or set(kinds) - {GLOBAL, LOCAL}:
            allowed = f"{GLOBAL} or {LOCAL} for each of {numbers.num_layers} layers"
            raise ConfigError("config.json: layer_types", kinds, allowed)
        bases = _read_bases(numbers)
        return numbers.but(
            reaches=[None if kind == GLOBAL else numbers.window // 2 for kind in kinds],
            bases=[bases[kind] for kind in kinds],
        )

    def settings(self, numbers: Numbers) -> Node:
        kinds = [GLOBAL if reach is None else LOCAL for reach in numbers.reaches]
        bases = {GLOBAL: 160000.0, LOCAL: 10000.0} | dict(zip(kinds, numbers.bases, strict=True))
        window = next((2 * reach for reach in numbers.reaches if reach is not None), 128)
        own = numbers.but(
            kinds=kinds,
            window=window,
            turns={k: {"rope_type": "default", "rope_theta": bases[k]} for k in (GLOBAL, LOCAL)},
            global_base=bases[GLOBAL],
            local_base=bases[LOCAL],
        )
        every = [n for n in range(1, len(kinds) + 1) if kinds == _alternate(n, len(kinds))]
        older = {"global_attn_every_n_layers": every[0]} if every else {}
        return super().settings(own) | older

    def nodes(self, numbers: Numbers) -> Node:
        nodes = encoder_nodes(numbers)
        nodes["pattern"] = {"_target_": PATTERN, "reach": numbers.reaches}
        nodes["position"] = {"_target_": ROTARY, "base": numbers.bases}
        model, cells = nodes["model"], nodes["model"]["stack"]["cells"]
        model["embedding"]["norm"]["bias"] = numbers.norm_bias
        model["embedding"]["segments"] = 0
        cells["a"]["bias"] = numbers.attention_bias
        inner = {"dropout": numbers.inner_dropout, "bias": numbers.inner_bias}
        cells["f"] |= {"_target_": GATED, **inner}
        model["stack"]["residual"] |= {
            "_target_": "plmctl.nn.residual.PreNorm",
            "dropout": 0.0,
            "first_norm": False,
        }
        model["initializer"] = {
            "_target_": "plmctl.nn.init.scaled_residual",
            "_partial_": True,
            "std": 0.02,
            "cut": 3.0,
        }
        pooling = {"pooling": "mean"} if numbers.pooling == "mean" else {}
        model["classifier"] = {
            "pooler": False,
            **pooling,
            "dense": True,
            "activation": numbers.head_activation,
            **_inner(numbers),
            "every_head": True,
        }
        return nodes

    def head(self, name: str, numbers: Numbers, outputs: int) -> Node:
        if name == "mlm":
            inner = {"dense_bias": numbers.head_bias, "norm_bias": numbers.norm_bias}
            own = {"transform": True, "bias": numbers.decoder_bias, "eps": numbers.eps}
            return lm_head(numbers, activation=numbers.head_activation, **own, **inner)
        inner = {"dense": True, "activation": numbers.head_activation, **_inner(numbers)}
        if name == "span":
            return {"_target_": "plmctl.heads.span.Span", **inner}
        kind = "tag.Tag" if name == "tag" else "classify.Classify"
        last = {"num_classes": outputs, "dropout": numbers.head_dropout}
        return {"_target_": f"plmctl.heads.{kind}", **last, **inner}

    def find_absent(
        self, tensors: Weights, rules: Sequence[NameRule], numbers: Numbers
    ) -> list[str]:
        absent = super().find_absent(tensors, rules, numbers)
        return [name for name in absent if name.removeprefix(self.prefix) != FIRST_NORM]

    def measure(self, config: Config, tensors: Weights, pad: int) -> Numbers:
        numbers = super().measure(config, tensors, pad)
        stack = config["model"].get("stack") or {}
        cells = stack.get("cells") or {}
        attention, inner = cells.get("a") or {}, cells.get("f") or {}
        embedding = config["model"].get("embedding") or {}
        heads = config.get("heads") or {}
        head: Node = next((heads[name] for name in self.heads if heads.get(name)), {})
        reach = config["pattern"].get("reach") if _is_window(config["pattern"]) else None
        base = config["position"].get("base", 10000.0)
        layers, stated = numbers.num_layers, config["model"].get("classifier") or {}
        return numbers.but(
            reaches=list(reach) if isinstance(reach, list | tuple) else [reach] * layers,
            bases=list(base) if isinstance(base, list | tuple) else [base] * layers,
            norm_bias=(embedding.get("norm") or {}).get("bias", True),
            attention_bias=attention.get("bias", True),
            inner_bias=inner.get("bias", False),
            inner_dropout=inner.get("dropout", 0.0),
            head_bias=head.get("dense_bias", True),
            head_dropout=head.get("dropout", 0.0),
            head_activation=head.get("activation", "gelu"),
            decoder_bias=(heads.get("mlm") or {}).get("bias", True),
            pooling=stated.get("pooling") if stated.get("pooling") == "mean" else "cls",
            longest=find_longest(config),
        )

    def remember(self, numbers: Numbers) -> Node:
        return {"longest": numbers.longest}

    def find_differences(self, config: Config, numbers: Numbers) -> list[str]:
        published = self.nodes(numbers)
        if config["pattern"].get("_target_") in (PATTERN, FULL):
            config = {**config, "pattern": published["pattern"]}
        if config["position"].get("_target_") == ROTARY:
            position = {**config["position"], "base": numbers.bases}
            config = {**config, "position": position}
        return super().find_differences(config, numbers)

    def find_unstated(self, config: Config, numbers: Numbers) -> list[str]:
        stated = dict(config["model"].get("classifier") or {})
        if stated.get("pooling") == "mean":
            stated["pooling"] = None
            config = {**config, "model": {**config["model"], "classifier": stated}}
        differences = super().find_unstated(config, numbers)
        reaches = {reach for reach in numbers.reaches if reach is not None}
        if len(reaches) > 1 or 0 in reaches:
            allowed = "one number of 1 or more, and null where a layer sees all tokens"
            differences.append(f"pattern.reach={numbers.reaches} (published: {allowed})")
        pairs = zip(numbers.reaches, numbers.bases, strict=False)
        by_kind = {(reach is None, base) for reach, base in pairs}
        if len(by_kind) > len({kind for kind, _ in by_kind}):
            allowed = "one base for layers that see all tokens, and one for the others"
            differences.append(f"position.base={numbers.bases} (published: {allowed})")
        return differences


def _inner(numbers: Numbers) -> Node:
    """The layer of heads, apart from its activation."""
    norm = {"norm_eps": numbers.eps, "norm_bias": numbers.norm_bias}
    return {"dense_bias": numbers.head_bias, **norm}


def _alternate(every: int, layers: int) -> list[str]:
    return [LOCAL if layer % every else GLOBAL for layer in range(layers)]


def _is_window(pattern: Mapping[str, Any]) -> bool:
    return pattern.get("_target_") == PATTERN


def _read_bases(numbers: Numbers) -> dict[str, float]:
    """The base of positions of each kind of layers."""
    wide = 160000.0 if numbers.global_base is None else numbers.global_base
    narrow = wide if numbers.local_base is None else numbers.local_base
    bases = {GLOBAL: wide, LOCAL: narrow}
    for kind, node in (numbers.turns or {}).items():
        if kind not in bases:
            allowed = f"{GLOBAL} and {LOCAL}{nearest(kind, bases)}"
            raise ConfigError("config.json: rope_parameters", kind, allowed)
        name = (node or {}).get("rope_type", "default")
        if name != "default":
            path = f"config.json: rope_parameters.{kind}.rope_type"
            raise ConfigError(path, name, "default (nothing else is supported)")
        bases[kind] = float((node or {}).get("rope_theta", bases[kind]))
    return bases
