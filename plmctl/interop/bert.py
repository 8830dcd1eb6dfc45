"""BERT (Devlin et al., 2019, arXiv:1810.04805) as `transformers` publishes it."""

from __future__ import annotations

from collections.abc import Sequence

from plmctl.core.values import Count, Number, Rate, Whole
from plmctl.interop.family import Architecture, Family, Node, linear_class, lm_head, row_classes
from plmctl.interop.names import NameRule, linear, maps, same
from plmctl.interop.settings import (
    TIED,
    VOCAB,
    Config,
    Key,
    Numbers,
    Only,
    Settings,
    Written,
    activation,
    pad,
)

LAYER = "encoder.layer.{i}"


OURS = "backbone.stack.blocks"
EMBEDDING: list[NameRule] = [
    same("backbone.embedding.token.weight", "embeddings.word_embeddings.weight"),
    same(
        "backbone.embedding.segment.weight",
        "embeddings.token_type_embeddings.weight",
        optional=True,
    ),
    *linear("backbone.embedding.norm", "embeddings.LayerNorm"),
]
INNER = maps(
    f"{OURS}.f.{{i}}",
    LAYER,
    {"cell.up": "intermediate.dense", "cell.down": "output.dense", "norm_sum": "output.LayerNorm"},
)


def encoder_rules(letter: str = "a", qkv: Sequence[NameRule] | None = None) -> list[NameRule]:
    """The rules of an encoder without its positions.

    Args:
        letter: The letter of attention in the layout.
        qkv: The rules of its maps, if they are others.
    """
    own = maps(f"{OURS}.a.{{i}}.cell", f"{LAYER}.attention.self", {"qkv": "query key value"})
    out = {"cell.out": "dense", "norm_sum": "LayerNorm"}
    return [
        *EMBEDDING,
        *(own if qkv is None else qkv),
        *maps(f"{OURS}.{letter}.{{i}}", f"{LAYER}.attention.output", out),
        *INNER,
    ]


BACKBONE = encoder_rules()
PLACES = ("backbone.position.table.weight", "embeddings.position_embeddings.weight")
OWN_POOLER = linear("heads.pooler.dense", "pooler.dense")
POOLER = linear("heads.pooler.dense", "bert.pooler.dense")
NSP = linear("heads.nsp.linear", "cls.seq_relationship")
_SBO = "cls.pair_target_predictions"
# as in SpanBERT's own checkpoints; `transformers` has no class for it and ignores these tensors
SBO: list[NameRule] = [
    same("heads.sbo.place.weight", f"{_SBO}.position_embeddings.weight"),
    *linear("heads.sbo.inner", f"{_SBO}.mlp_layer_norm.linear1"),
    *linear("heads.sbo.norm", f"{_SBO}.mlp_layer_norm.layer_norm1"),
    *linear("heads.sbo.lm.dense", f"{_SBO}.mlp_layer_norm.linear2"),
    *linear("heads.sbo.lm.norm", f"{_SBO}.mlp_layer_norm.layer_norm2"),
    same("heads.sbo.lm.bias", f"{_SBO}.bias"),
]
# kinds of segments; its released config.json leaves out the epsilon, which its code has at 1e-5
# (modeling.py)
UNILM = 6
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "relu2": "square_relu",
    "leaky_relu": "leaky_relu",
    "silu": "silu",
    "sigmoid": "sigmoid",
    "tanh": "tanh",
}


def lm_rules(dense: str, norm: str, bias: str, table: str) -> list[NameRule]:
    """The rules of the head of masked tokens."""
    return [
        *linear("heads.mlm.dense", dense),
        *linear("heads.mlm.norm", norm),
        same("heads.mlm.bias", bias),
        same("heads.mlm.weight", table, optional=True),
    ]


def task_architectures(prefix: str) -> list[Architecture]:
    """The token classifiers, which all families of encoders have in the same form."""
    return [
        linear_class(f"{prefix}ForTokenClassification", "tag", "classifier"),
        linear_class(f"{prefix}ForQuestionAnswering", "span", "qa_outputs"),
    ]


MLM = lm_rules(
    "cls.predictions.transform.dense",
    "cls.predictions.transform.LayerNorm",
    "cls.predictions.bias",
    "cls.predictions.decoder.weight",
)


def choice_class(
    prefix: str, pooler: Sequence[NameRule], rules: Sequence[NameRule] | None = None
) -> Architecture:
    """The class that gives each choice a number; without `rules` a linear map of pooled rows."""
    before = ("pooler",) if pooler else ()
    own = classifier("choice") if rules is None else rules
    name = f"{prefix}ForMultipleChoice"
    return Architecture(name, (*before, "choice"), [*pooler, *own], outputs=1)


def tuned_classes(prefix: str, pooler: Sequence[NameRule]) -> list[Architecture]:
    """BERT's classes for tasks, in families with the same heads: their names begin with `prefix`,
    and `pooler` stands before a head of rows.
    """
    return [
        *row_classes(f"{prefix}ForSequenceClassification", classifier, pooler),
        choice_class(prefix, pooler),
        *task_architectures(prefix),
    ]


def pretrained_classes(prefix: str, pooler: Sequence[NameRule]) -> list[Architecture]:
    """BERT's other classes, as `tuned_classes`."""
    return [
        Architecture(f"{prefix}ForPreTraining", ("mlm", "pooler", "nsp"), [*MLM, *pooler, *NSP]),
        Architecture(f"{prefix}ForMaskedLM", ("mlm",), MLM),
        Architecture(f"{prefix}ForNextSentencePrediction", ("pooler", "nsp"), [*pooler, *NSP]),
        Architecture(f"{prefix}Model", ("pooler",), OWN_POOLER, bare=True),
        Architecture(f"{prefix}Model", bare=True),
    ]


def classifier(head: str) -> list[NameRule]:
    """The rules of a linear classifier."""
    return linear(f"heads.{head}.linear", "classifier")


def encoder_nodes(numbers: Numbers) -> Node:
    """The nodes of conf/model/encoder.yaml, position/learned.yaml and pattern/full.yaml."""
    norm: Node = {"_target_": "plmctl.nn.norm.layer_norm", "_partial_": True, "eps": numbers.eps}
    attention = {"num_heads": numbers.num_heads, "dropout": numbers.attention_dropout}
    inner = {"inner_width": numbers.inner_width, "activation": numbers.activation}
    return {
        "size": {
            name: getattr(numbers, name)
            for name in ("num_layers", "width", "num_heads", "inner_width")
        },
        "pattern": {"_target_": "plmctl.attention.patterns.base.Full"},
        "position": {"_target_": "plmctl.nn.positions.Learned", "max_length": numbers.max_length},
        "model": {
            "_target_": "plmctl.models.encoder.Encoder",
            "embedding": {
                "_target_": "plmctl.nn.embeddings.Embedding",
                "segments": numbers.segments,
                "dropout": numbers.dropout,
                "norm": norm,
            },
            "stack": {
                "_target_": "plmctl.nn.stack.Stack",
                "layout": f"af*{numbers.num_layers}",
                "cells": {
                    "a": {
                        "_target_": "plmctl.nn.cells.attention.Attention",
                        "_partial_": True,
                        **attention,
                    },
                    "f": {
                        "_target_": "plmctl.nn.cells.feedforward.FeedForward",
                        "_partial_": True,
                        **inner,
                    },
                },
                "residual": {
                    "_target_": "plmctl.nn.residual.PostNorm",
                    "dropout": numbers.dropout,
                    "norm": norm,
                },
            },
            "initializer": {
                "_target_": "plmctl.nn.init.truncated_normal",
                "_partial_": True,
                "std": 0.02,
            },
            "classifier": {"pooler": True, "dense": False, "bias": True},
        },
    }


def task_head(name: str, numbers: Numbers, outputs: int) -> Node:
    """The heads of fine-tuning and of segment pairs, the same for every backbone."""
    dropout = {"dropout": numbers.dropout}
    nodes: dict[str, Node] = {
        "pooler": {"_target_": "plmctl.heads.pooler.Pooler"},
        "nsp": {"_target_": "plmctl.heads.pair.PairHead", "num_classes": outputs},
        "class": {"_target_": "plmctl.heads.classify.Classify", "num_classes": outputs, **dropout},
        "score": {"_target_": "plmctl.heads.classify.Classify", "num_classes": outputs, **dropout},
        "choice": {"_target_": "plmctl.heads.classify.Classify", "num_classes": outputs, **dropout},
        "tag": {"_target_": "plmctl.heads.tag.Tag", "num_classes": outputs, **dropout},
        "span": {"_target_": "plmctl.heads.span.Span"},
    }
    return nodes[name]


TIES = {
    "cls.predictions.decoder.weight": "embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
    f"{_SBO}.decoder.weight": "embeddings.word_embeddings.weight",
}


SETTINGS: Settings = (
    VOCAB,
    Key("hidden_size", "width", Count),
    Key("num_hidden_layers", "num_layers", Count),
    Key("num_attention_heads", "num_heads", Count),
    Key("intermediate_size", "inner_width", Count),
    activation("hidden_act", ACTIVATIONS),
    Key("hidden_dropout_prob", "dropout", Rate, 0.1),
    Key("attention_probs_dropout_prob", "attention_dropout", Rate, 0.1),
    Key("max_position_embeddings", "max_length", Count),
    Key("type_vocab_size", "segments", Whole, 2),
    Key("layer_norm_eps", "eps", Number, 1e-12),
    Written("initializer_range", 0.02),
    TIED,
    pad(written=False),
    Only("position_embedding_type", "absolute"),
    Only("is_decoder", False),
    Only("add_cross_attention", False),
)
# files without a table of their own have ALBERT's and ELECTRA's width
TABLE_WIDTH = Key("embedding_size", "table_width", Count, 128)


# settings of a pooler that no published code has
_POOLER = ("fc_size", "num_attention_heads", "num_fc_layers", "size_per_head", "type")


class BertFamily(Family):
    """Post-norm encoder with learned positions and segment embeddings, `BertFor...`."""

    model_type = "bert"
    systems: tuple[str, ...] = ("BERT", "SpanBERT", "UniLM")
    recipes: tuple[str, ...] = ("bert", "spanbert", "unilm")
    hub: tuple[tuple[str, int], ...] = (
        ("google-bert/bert-base-uncased", 110),
        ("google-bert/bert-large-uncased", 336),
        ("google-bert/bert-base-multilingual-cased", 178),
        ("SpanBERT/spanbert-base-cased", 108),
    )
    stated = SETTINGS
    ignored: frozenset[str] = frozenset(f"pooler_{name}" for name in _POOLER) | {"directionality"}
    prefix = "bert."
    rules: Sequence[NameRule] = (*BACKBONE, same(*PLACES))
    architectures: Sequence[Architecture] = (
        *tuned_classes("Bert", POOLER),
        Architecture(
            "BertForPreTraining", ("mlm", "pooler", "nsp", "sbo"), MLM + POOLER + NSP + SBO
        ),
        Architecture("BertForMaskedLM", ("mlm", "sbo"), MLM + SBO),
        *pretrained_classes("Bert", POOLER),
    )
    ties = TIES
    pooler: Sequence[NameRule] = OWN_POOLER
    unread: tuple[str, ...] = ("sbo",)

    def numbers(self, settings: Config) -> Numbers:
        eps = 1e-5 if settings.get("type_vocab_size") == UNILM else 1e-12
        return super().numbers({"layer_norm_eps": eps, **settings})

    def nodes(self, numbers: Numbers) -> Node:
        nodes = encoder_nodes(numbers)
        nodes["model"]["embedding"]["segments"] = max(2, numbers.segments)  # fewer is RoBERTa
        return nodes

    def find_differences(self, config: Config, numbers: Numbers) -> list[str]:
        if _by_segment(config):  # the mask of such a model is an argument of the published class
            config = {**config, "pattern": self.nodes(numbers)["pattern"]}
        return super().find_differences(config, numbers)

    def list_unexpressed(self, config: Config) -> list[str]:
        pattern = "pattern: its config.json cannot express it; give each batch a 4-D attention_mask"
        return [pattern] if _by_segment(config) else []

    def head(self, name: str, numbers: Numbers, outputs: int) -> Node:
        inside: Node = {"activation": numbers.activation, "eps": numbers.eps}
        if name == "sbo":
            return {
                "_target_": "plmctl.heads.sbo.SBOHead",
                "max_targets": outputs,
                "place_width": 200,
                **inside,
            }
        if name != "mlm":
            return task_head(name, numbers, outputs)
        return lm_head(numbers, transform=True, **inside)


def _by_segment(config: Config) -> bool:
    """Whether the pattern is that of UniLM (Dong et al., 2019, arXiv:1905.03197), which depends on
    the segments.
    """
    return (
        str(config["pattern"].get("_target_")) == "plmctl.attention.patterns.by_segment.BySegment"
    )
