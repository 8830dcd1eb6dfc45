"""MobileBERT (Sun et al., 2020, arXiv:2004.02984) as `transformers` publishes it."""

from __future__ import annotations

from plmctl.core.values import Count, Rate
from plmctl.interop.bert import (
    ACTIVATIONS,
    EMBEDDING,
    LAYER,
    MLM,
    NSP,
    OURS,
    OWN_POOLER,
    PLACES,
    SETTINGS,
    TABLE_WIDTH,
    BertFamily,
    choice_class,
    classifier,
    tuned_classes,
)
from plmctl.interop.family import Architecture, Node, rename_cells, row_classes
from plmctl.interop.names import NameRule, Weights, linear, maps, same, transpose
from plmctl.interop.settings import Config, Key, Numbers, Only, activation, change

CELL = f"{OURS}.q.{{i}}.cell"
POOLER = linear("heads.pooler.dense", "mobilebert.pooler.dense")
WIDE = [*MLM, transpose("heads.mlm.more", "cls.predictions.dense.weight")]
NAME = "MobileBert"


def feed_rules(number: int, count: int) -> list[NameRule]:
    """The rules of one of the feed-forward cells of a layer; the last one has other names."""
    theirs = LAYER if number == count - 1 else f"{LAYER}.ffn.{number}"
    cell = {"up": "intermediate.dense", "down": "output.dense"}
    return [
        *maps(f"{CELL}.feeds.{number}", theirs, cell),
        *linear(f"{CELL}.norms.{number + 1}", f"{theirs}.output.LayerNorm"),
    ]


class MobileBertFamily(BertFamily):
    """Layers in a narrow stream, input of three neighbours, norms without statistics.

    Differs: the vector of padding learns (there: it stays as it is).
    """

    model_type = "mobilebert"
    systems = ("MobileBERT",)
    recipes: tuple[str, ...] = ("mobilebert",)
    hub: tuple[tuple[str, int], ...] = (("google/mobilebert-uncased", 25),)
    ignored = BertFamily.ignored | {"true_hidden_size"}
    stated = change(
        SETTINGS,
        activation("hidden_act", ACTIVATIONS, "relu"),
        Key("hidden_dropout_prob", "dropout", Rate, 0.0),
        TABLE_WIDTH,
        Key("intra_bottleneck_size", "bottleneck", Count, 128),
        Key("num_feedforward_networks", "feeds", Count, 4),
        Key("classifier_activation", "pooled", bool, True),
        Only("trigram_input", True),
        Only("use_bottleneck", True),
        Only("use_bottleneck_attention", False),
        Only("key_query_shared_bottleneck", True),
        Only("normalization_type", "no_norm"),
    )
    prefix = "mobilebert."
    architectures = (
        *tuned_classes(NAME, POOLER),
        *row_classes(f"{NAME}ForSequenceClassification", classifier),
        choice_class(NAME, ()),
        Architecture(f"{NAME}ForPreTraining", ("mlm", "pooler", "nsp"), [*WIDE, *POOLER, *NSP]),
        Architecture(f"{NAME}ForPreTraining", ("mlm", "nsp"), [*WIDE, *NSP]),
        Architecture(f"{NAME}ForMaskedLM", ("mlm",), WIDE),
        Architecture(f"{NAME}ForNextSentencePrediction", ("pooler", "nsp"), [*POOLER, *NSP]),
        Architecture(f"{NAME}ForNextSentencePrediction", ("nsp",), NSP),
        Architecture(f"{NAME}Model", ("pooler",), OWN_POOLER, bare=True),
        Architecture(f"{NAME}Model", bare=True),
    )
    unread: tuple[str, ...] = ()

    def backbone(self, numbers: Numbers) -> list[NameRule]:
        narrow = {"enter": "bottleneck.input", "share": "bottleneck.attention"}
        parts = {"linear": "dense", "norm": "LayerNorm"}
        attention = {"qkv": "self.query self.key", "value": "self.value", "out": "output.dense"}
        leave = {"leave": "dense", "last_norm": "LayerNorm"}
        return [
            *EMBEDDING,
            *linear("backbone.embedding.token.project", "embeddings.embedding_transformation"),
            same(*PLACES),
            *(
                rule
                for ours, theirs in narrow.items()
                for rule in maps(f"{CELL}.{ours}", f"{LAYER}.{theirs}", parts)
            ),
            *maps(CELL, f"{LAYER}.attention", attention),
            *linear(f"{CELL}.norms.0", f"{LAYER}.attention.output.LayerNorm"),
            *(rule for j in range(numbers.feeds) for rule in feed_rules(j, numbers.feeds)),
            *maps(CELL, f"{LAYER}.output.bottleneck", leave),
        ]

    def nodes(self, numbers: Numbers) -> Node:
        nodes = super().nodes(numbers)
        norm = {"_target_": "plmctl.nn.norm.no_norm", "_partial_": True}
        table = {"_target_": "plmctl.nn.trigrams.TrigramTable", "_partial_": True}
        model, stack = nodes["model"], nodes["model"]["stack"]
        model["embedding"] |= {"norm": norm, "table": {**table, "table_width": numbers.table_width}}
        model["classifier"]["pooler"] = numbers.pooled
        layer = {
            "_target_": "plmctl.nn.cells.bottleneck_layer.BottleneckLayer",
            "_partial_": True,
            "norm": norm,
            "last_dropout": numbers.dropout,
            "dropout": numbers.attention_dropout,
        }
        names = ("num_heads", "bottleneck", "inner_width", "feeds", "activation")
        layer |= {name: getattr(numbers, name) for name in names}
        stack |= {"layout": f"q*{numbers.num_layers}", "cells": {"q": layer}}
        return nodes

    def head(self, name: str, numbers: Numbers, outputs: int) -> Node:
        node = super().head(name, numbers, outputs)
        return node | ({"widened": True} if name == "mlm" else {})

    def measure(self, config: Config, tensors: Weights, pad: int) -> Numbers:
        model = config.get("model") or {}
        cell = ((model.get("stack") or {}).get("cells") or {}).get("q") or {}
        numbers = super().measure(rename_cells(config, {"q": "a"}), tensors, pad)
        project = tensors.get("backbone.embedding.token.project.weight")
        return numbers.but(
            width=numbers.width if project is None else len(project),
            bottleneck=cell.get("bottleneck", 128),
            feeds=cell.get("feeds", 4),
            inner_width=cell.get("inner_width", 0),
            activation=cell.get("activation", "relu"),
            pooled=(model.get("classifier") or {}).get("pooler", True),
        )
