"""NEZHA (Wei et al., 2019, arXiv:1909.00204) as `transformers` published it until version 4."""

from __future__ import annotations

from collections.abc import Sequence

from plmctl.core.values import Count
from plmctl.interop.bert import (
    LAYER,
    OURS,
    SETTINGS,
    BertFamily,
    encoder_rules,
    pretrained_classes,
    tuned_classes,
)
from plmctl.interop.family import Node, rename_cells
from plmctl.interop.names import NameRule, Weights, linear, maps
from plmctl.interop.settings import Config, Key, Numbers, change

POOLER = linear("heads.pooler.dense", "nezha.pooler.dense")
LONGEST = 512  # the published default; ours has no longest row
QKV = maps(f"{OURS}.o.{{i}}.cell", f"{LAYER}.attention.self", {"q": "query", "kv": "key value"})


class NezhaFamily(BertFamily):
    """BERT's encoder without positions in the embedding; keys and values have fixed waves of the
    distance.
    """

    model_type = "nezha"
    systems = ("NEZHA",)
    recipes: tuple[str, ...] = ("nezha",)
    hub: tuple[tuple[str, int], ...] = (("sijunhe/nezha-cn-base", 102),)
    stated = change(SETTINGS, Key("max_relative_position", "clip", Count, 64))
    prefix = "nezha."
    rules: Sequence[NameRule] = encoder_rules("o", QKV)
    architectures = (*tuned_classes("Nezha", POOLER), *pretrained_classes("Nezha", POOLER))
    unread: tuple[str, ...] = ()

    def nodes(self, numbers: Numbers) -> Node:
        nodes = super().nodes(numbers)
        nodes["position"] = {"_target_": "plmctl.nn.positions.NoPosition"}
        stack = nodes["model"]["stack"]
        cell = stack["cells"].pop("a") | {
            "_target_": "plmctl.nn.cells.shaw_attention.ShawAttention",
            "clip": numbers.clip,
            "learned": False,
        }
        stack |= {"layout": f"of*{numbers.num_layers}", "cells": {"o": cell, **stack["cells"]}}
        return nodes

    def measure(self, config: Config, tensors: Weights, pad: int) -> Numbers:
        plain = rename_cells(config, {"o": "a"})
        clip = (plain["model"]["stack"]["cells"].get("a") or {}).get("clip", 16)
        numbers = super().measure(plain, tensors, pad)
        return numbers.but(clip=clip, max_length=numbers.max_length or LONGEST)
