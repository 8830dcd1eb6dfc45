"""BERT (Devlin et al., 2019, arXiv:1810.04805) as `transformers` publishes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NotRequired

from plmctl.core.errors import ConfigError
from plmctl.core.values import Count, Number, Rate, Whole
from plmctl.interop.family import Architecture, Family, Node, Numbers, PublishedConfig
from plmctl.interop.names import NameRule, linear, same

LAYER = "encoder.layer.{i}"
BACKBONE: list[NameRule] = [
    same("backbone.embedding.token.weight", "embeddings.word_embeddings.weight"),
    same(
        "backbone.embedding.segment.weight",
        "embeddings.token_type_embeddings.weight",
        optional=True,
    ),
    *linear("backbone.embedding.norm", "embeddings.LayerNorm"),
    *linear(
        "backbone.stack.blocks.a.{i}.cell.qkv",
        *(f"{LAYER}.attention.self.{name}" for name in ("query", "key", "value")),
    ),
    *linear("backbone.stack.blocks.a.{i}.cell.out", f"{LAYER}.attention.output.dense"),
    *linear("backbone.stack.blocks.a.{i}.norm_sum", f"{LAYER}.attention.output.LayerNorm"),
    *linear("backbone.stack.blocks.f.{i}.cell.up", f"{LAYER}.intermediate.dense"),
    *linear("backbone.stack.blocks.f.{i}.cell.down", f"{LAYER}.output.dense"),
    *linear("backbone.stack.blocks.f.{i}.norm_sum", f"{LAYER}.output.LayerNorm"),
]
PLACES = ("backbone.position.table.weight", "embeddings.position_embeddings.weight")
MLM: list[NameRule] = [
    *linear("heads.mlm.dense", "cls.predictions.transform.dense"),
    *linear("heads.mlm.norm", "cls.predictions.transform.LayerNorm"),
    same("heads.mlm.bias", "cls.predictions.bias"),
    same("heads.mlm.weight", "cls.predictions.decoder.weight", optional=True),
]
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
    "silu": "silu",
    "sigmoid": "sigmoid",
    "tanh": "tanh",
}


def task_architectures(prefix: str) -> list[Architecture]:
    """The token classifiers, which all families of encoders have in the same form."""
    return [
        Architecture(
            f"{prefix}ForTokenClassification", ("tag",), linear("heads.tag.linear", "classifier")
        ),
        Architecture(
            f"{prefix}ForQuestionAnswering", ("span",), linear("heads.span.linear", "qa_outputs")
        ),
    ]


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


class BertConfig(PublishedConfig):
    """The settings of `config.json` that are read."""

    num_hidden_layers: Count
    hidden_size: Count
    num_attention_heads: Count
    intermediate_size: Count
    max_position_embeddings: Count
    type_vocab_size: NotRequired[Whole]
    hidden_dropout_prob: NotRequired[Rate]
    attention_probs_dropout_prob: NotRequired[Rate]
    hidden_act: NotRequired[str]
    layer_norm_eps: NotRequired[Number]
    embedding_size: NotRequired[Count]  # ALBERT, ELECTRA
    num_hidden_groups: NotRequired[Count]  # ALBERT
    inner_group_num: NotRequired[Count]


class BertFamily(Family):
    """Post-norm encoder with learned positions and segment embeddings, `BertFor...`."""

    model_type = "bert"
    systems: tuple[str, ...] = ("BERT", "SpanBERT", "UniLM")
    schema = BertConfig
    prefix = "bert."
    rules = (*BACKBONE, same(*PLACES))
    architectures = (
        Architecture(
            "BertForSequenceClassification",
            ("pooler", "score"),
            POOLER + linear("heads.score.linear", "classifier"),
            outputs=1,
        ),
        Architecture(
            "BertForSequenceClassification",
            ("pooler", "class"),
            POOLER + linear("heads.class.linear", "classifier"),
        ),
        *task_architectures("Bert"),
        Architecture(
            "BertForPreTraining", ("mlm", "pooler", "nsp", "sbo"), MLM + POOLER + NSP + SBO
        ),
        Architecture("BertForMaskedLM", ("mlm", "sbo"), MLM + SBO),
        Architecture("BertForPreTraining", ("mlm", "pooler", "nsp"), MLM + POOLER + NSP),
        Architecture("BertForMaskedLM", ("mlm",), MLM),
        Architecture("BertForNextSentencePrediction", ("pooler", "nsp"), POOLER + NSP),
        Architecture("BertModel", ("pooler",), OWN_POOLER, bare=True),
        Architecture("BertModel", bare=True),
    )
    ties = TIES
    activations = ACTIVATIONS
    pooler: Sequence[NameRule] = OWN_POOLER
    unread: tuple[str, ...] = ("sbo",)

    def numbers(self, settings: Mapping[str, Any]) -> Numbers:
        for key, allowed in (
            ("position_embedding_type", "absolute"),
            ("is_decoder", False),
            ("add_cross_attention", False),
        ):
            if settings.get(key, allowed) != allowed:
                raise ConfigError(
                    f"config.json: {key}", settings[key], f"{allowed} (nothing else is supported)"
                )
        segments = settings.get("type_vocab_size", 2)
        return Numbers(
            num_layers=settings["num_hidden_layers"],
            width=settings["hidden_size"],
            num_heads=settings["num_attention_heads"],
            inner_width=settings["intermediate_size"],
            vocab_size=settings["vocab_size"],
            max_length=settings["max_position_embeddings"],
            segments=segments,
            dropout=settings.get("hidden_dropout_prob", 0.1),
            attention_dropout=settings.get("attention_probs_dropout_prob", 0.1),
            activation=self.activation(settings.get("hidden_act", "gelu"), "hidden_act"),
            eps=settings.get("layer_norm_eps", 1e-5 if segments == UNILM else 1e-12),
            tied=settings.get("tie_word_embeddings", True),
            pad=settings.get("pad_token_id") or 0,
        )

    def settings(self, numbers: Numbers) -> Node:
        return {
            "model_type": self.model_type,
            "vocab_size": numbers.vocab_size,
            "hidden_size": numbers.width,
            "num_hidden_layers": numbers.num_layers,
            "num_attention_heads": numbers.num_heads,
            "intermediate_size": numbers.inner_width,
            "hidden_act": self.activation_name(numbers.activation),
            "hidden_dropout_prob": numbers.dropout,
            "attention_probs_dropout_prob": numbers.attention_dropout,
            "max_position_embeddings": numbers.max_length,
            "type_vocab_size": numbers.segments,
            "layer_norm_eps": numbers.eps,
            "initializer_range": 0.02,
            "tie_word_embeddings": numbers.tied,
        }

    def nodes(self, numbers: Numbers) -> Node:
        nodes = encoder_nodes(numbers)
        nodes["model"]["embedding"]["segments"] = max(2, numbers.segments)  # fewer is RoBERTa
        return nodes

    def find_differences(self, config: Mapping[str, Any], numbers: Numbers) -> list[str]:
        if _by_segment(config):  # the mask of such a model is an argument of the published class
            config = {**config, "pattern": self.nodes(numbers)["pattern"]}
        return super().find_differences(config, numbers)

    def list_unexpressed(self, config: Mapping[str, Any]) -> list[str]:
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
        return {
            "_target_": "plmctl.heads.lm.LMHead",
            "tied": numbers.tied,
            "transform": True,
            "bias": True,
            **inside,
        }


def _by_segment(config: Mapping[str, Any]) -> bool:
    """Whether the pattern is that of UniLM (Dong et al., 2019, arXiv:1905.03197), which depends on
    the segments.
    """
    return (
        str(config["pattern"].get("_target_")) == "plmctl.attention.patterns.by_segment.BySegment"
    )
