"""ALBERT (Lan et al., 2020, arXiv:1909.11942) as `transformers` publishes it."""

from __future__ import annotations

import torch
from torch import Tensor

from plmctl.core.errors import ConfigError
from plmctl.core.values import Count, Rate
from plmctl.interop.bert import (
    ACTIVATIONS,
    PLACES,
    SETTINGS,
    TABLE_WIDTH,
    BertFamily,
    choice_class,
    classifier,
    lm_rules,
    task_architectures,
)
from plmctl.interop.family import Architecture, Node, row_classes
from plmctl.interop.names import NameRule, Tensors, Weights, linear, maps, same
from plmctl.interop.settings import Config, Key, Numbers, Only, Written, activation, change
from plmctl.nn.layout import count_copies, parse

GROUP = "encoder.albert_layer_groups.{i}.albert_layers.0"
MAP = "encoder.embedding_hidden_mapping_in"
BACKBONE: list[NameRule] = [
    same("backbone.embedding.token.weight", "embeddings.word_embeddings.weight"),
    same("backbone.embedding.segment.weight", "embeddings.token_type_embeddings.weight"),
    *linear("backbone.embedding.norm", "embeddings.LayerNorm"),
    same(*PLACES),
    *maps(
        "backbone.stack.blocks.a.{i}",
        f"{GROUP}.attention",
        {"cell.qkv": "query key value", "cell.out": "dense", "norm_sum": "LayerNorm"},
    ),
    *maps(
        "backbone.stack.blocks.f.{i}",
        GROUP,
        {"cell.up": "ffn", "cell.down": "ffn_output", "norm_sum": "full_layer_layer_norm"},
    ),
]
MLM = lm_rules(
    "predictions.dense", "predictions.LayerNorm", "predictions.bias", "predictions.decoder.weight"
)
OWN_POOLER = linear("heads.pooler.dense", "pooler")
POOLER = linear("heads.pooler.dense", "albert.pooler")
SOP = linear("heads.sop.linear", "sop_classifier.classifier")
TIES = {
    "predictions.decoder.weight": "embeddings.word_embeddings.weight",
    "predictions.decoder.bias": "predictions.bias",
}


class AlbertFamily(BertFamily):
    """BERT's encoder with `groups` sets of weights for all layers, and tables of `table_width`
    columns mapped to the width.

    The published classes have that map even if both widths are equal; our embedding then has none:
    export writes the identity, and import accepts only that.
    """

    model_type = "albert"
    systems = ("ALBERT",)
    recipes: tuple[str, ...] = ("albert",)
    hub: tuple[tuple[str, int], ...] = (
        ("albert/albert-base-v2", 12),
        ("albert/albert-large-v2", 18),
        ("albert/albert-xlarge-v2", 60),
        ("albert/albert-xxlarge-v2", 235),
    )
    stated = change(
        SETTINGS,
        activation("hidden_act", ACTIVATIONS, "gelu_new"),
        Key("hidden_dropout_prob", "dropout", Rate, 0.0),
        Key("attention_probs_dropout_prob", "attention_dropout", Rate, 0.0),
        TABLE_WIDTH,
        Key("num_hidden_groups", "groups", Count, 1),
        Only("inner_group_num", 1, written=True),
        Written("classifier_dropout_prob", 0.1),
    )
    ignored = frozenset({"down_scale_factor"})
    prefix = "albert."
    architectures = (
        *row_classes("AlbertForSequenceClassification", classifier, POOLER),
        choice_class("Albert", POOLER),
        *task_architectures("Albert"),
        Architecture("AlbertForPreTraining", ("mlm", "pooler", "sop"), MLM + POOLER + SOP),
        Architecture("AlbertForMaskedLM", ("mlm",), MLM),
        Architecture("AlbertModel", ("pooler",), OWN_POOLER, bare=True),
        Architecture("AlbertModel", bare=True),
    )
    ties = TIES
    pooler = OWN_POOLER

    def numbers(self, settings: Config) -> Numbers:
        numbers = super().numbers(settings)
        if numbers.num_layers % numbers.groups:
            allowed = (
                f"a divisor of num_hidden_layers={numbers.num_layers} (nothing else is supported)"
            )
            raise ConfigError("config.json: num_hidden_groups", numbers.groups, allowed)
        return numbers

    def nodes(self, numbers: Numbers) -> Node:
        nodes = super().nodes(numbers)
        nodes["model"]["embedding"]["table_width"] = numbers.table_width
        nodes["model"]["stack"]["share"] = {"a": numbers.groups, "f": numbers.groups}
        return nodes

    def head(self, name: str, numbers: Numbers, outputs: int) -> Node:
        if name == "sop":
            return {"_target_": "plmctl.heads.pair.PairHead", "num_classes": outputs}
        return super().head(name, numbers, outputs)

    def backbone(self, numbers: Numbers) -> list[NameRule]:
        return BACKBONE + (
            linear("backbone.embedding.project", MAP)
            if numbers.table_width != numbers.width
            else []
        )

    def adapt(self, numbers: Numbers, tensors: Tensors) -> tuple[Numbers, Tensors]:
        if numbers.table_width != numbers.width:
            return numbers, tensors
        maps = {
            name: tensor
            for name, tensor in tensors.items()
            if name.removeprefix(self.prefix).startswith(f"{MAP}.")
        }
        identity = _identity(numbers.width)
        if any(
            not tensor.float().equal(identity[name.rpartition(".")[2]])
            for name, tensor in maps.items()
        ):
            allowed = (
                f"not hidden_size={numbers.width}: here, tables as wide as the model have no map"
                " after them, but these have one"
            )
            raise ConfigError("config.json: embedding_size", numbers.table_width, allowed)
        return numbers, {name: tensor for name, tensor in tensors.items() if name not in maps}

    def complete(self, tensors: Tensors, numbers: Numbers, architecture: Architecture) -> Tensors:
        if numbers.table_width != numbers.width:
            return tensors
        prefix = "" if architecture.bare else self.prefix
        table = tensors[f"{prefix}embeddings.word_embeddings.weight"]
        return tensors | {
            f"{prefix}{MAP}.{part}": tensor.to(table)
            for part, tensor in _identity(numbers.width).items()
        }

    def measure(self, config: Config, tensors: Weights, pad: int) -> Numbers:
        config = _normalize(config)
        numbers = super().measure(config, tensors, pad)
        groups = (config["model"].get("stack") or {}).get("share") or {}
        return numbers.but(groups=groups.get("a", numbers.num_layers))

    def find_differences(self, config: Config, numbers: Numbers) -> list[str]:
        config = _normalize(config)
        embedding = config["model"].get("embedding") or {}
        widths = {"table_width": embedding.get("table_width") or numbers.width}
        return super().find_differences(
            {**config, "model": {**config["model"], "embedding": {**embedding, **widths}}}, numbers
        )


def _identity(width: int) -> dict[str, Tensor]:
    return {"weight": torch.eye(width), "bias": torch.zeros(width)}


def _normalize(config: Config) -> Config:
    """`config` with an encoder's layers as `af*12` and their sharing as `{a: G, f: G}`, also for
    `af@12`.
    """
    stack = config["model"].get("stack") or {}
    try:
        steps = parse(stack["layout"], share=stack.get("share"))
    except (KeyError, ConfigError):
        return config
    in_parallel = any(step.joins for step in steps)
    if in_parallel or [step.letter for step in steps] != ["a", "f"] * (len(steps) // 2):
        return config
    layers, share = len(steps) // 2, count_copies(steps)
    return {
        **config,
        "model": {**config["model"], "stack": {**stack, "layout": f"af*{layers}", "share": share}},
    }
