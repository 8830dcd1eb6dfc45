"""ConvBERT (Jiang et al., 2020, arXiv:2008.02496) as `transformers` publishes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from plmctl.core.errors import ConfigError
from plmctl.core.values import Count
from plmctl.interop.bert import EMBEDDING, INNER, LAYER, OURS, PLACES, task_architectures
from plmctl.interop.electra import MLM, ElectraFamily
from plmctl.interop.family import Architecture, Node, rename_cells, row_classes
from plmctl.interop.names import NameRule, Weights, linear, maps, same
from plmctl.interop.roberta import classifier_rules
from plmctl.interop.settings import Config, Key, Numbers, change

CELLS = "plmctl.nn.cells"
SELF = f"{LAYER}.attention.self"
ATTENTION: Sequence[NameRule] = (
    *maps(
        f"{OURS}.m.{{i}}.cell",
        SELF,
        {"qkv": "query key value", "taps": "conv_kernel_layer", "values": "conv_out_layer"},
    ),
    NameRule(
        f"{OURS}.m.{{i}}.cell.span.taps.weight",
        (f"{SELF}.key_conv_attn_layer.depthwise.weight",),
        lambda found: found[0][:, 0],
        lambda tensor: [tensor[:, None]],
    ),
    NameRule(
        f"{OURS}.m.{{i}}.cell.span.out.weight",
        (f"{SELF}.key_conv_attn_layer.pointwise.weight",),
        lambda found: found[0][..., 0],
        lambda tensor: [tensor[..., None]],
    ),
    NameRule(
        f"{OURS}.m.{{i}}.cell.span.out.bias",
        (f"{SELF}.key_conv_attn_layer.bias",),
        lambda found: found[0][:, 0],
        lambda tensor: [tensor[:, None]],
    ),
    *maps(
        f"{OURS}.m.{{i}}",
        f"{LAYER}.attention.output",
        {"cell.out": "dense", "norm_sum": "LayerNorm"},
    ),
)


def group(rule: NameRule, groups: int) -> NameRule:
    """The rule of a feed-forward cell with groups, whose weights are [groups, inputs, outputs]
    there and [all outputs, inputs] here.
    """
    ours = rule.ours.replace(".f.", ".y.")
    if groups == 1 or not ours.endswith(("up.weight", "down.weight")):
        return rule if groups == 1 else replace(rule, ours=ours)
    return NameRule(
        ours,
        rule.theirs,
        lambda found: found[0].transpose(1, 2).flatten(0, 1),
        lambda tensor: [tensor.unflatten(0, (groups, -1)).transpose(1, 2)],
    )


class ConvBertFamily(ElectraFamily):
    """ELECTRA's encoder, half of whose attention is a convolution; feed-forward cells may read and
    write groups of columns.

    Its class of choices reads the last column, padding or not, and is not read. Differs: padding
    does not reach the convolution (released code: it does).
    """

    model_type = "convbert"
    systems = ("ConvBERT",)
    hub: tuple[tuple[str, int], ...] = (("YituTech/conv-bert-base", 106),)
    stated = change(
        ElectraFamily.stated,
        # a row of files without it is as wide as the model
        Key("embedding_size", "table_width", Count, 768),
        Key("head_ratio", "ratio", Count, 2),
        Key("conv_kernel_size", "kernel", Count, 9),
        Key("num_groups", "ffn_groups", Count, 1),
    )
    prefix = "convbert."
    architectures = (
        *row_classes("ConvBertForSequenceClassification", classifier_rules),
        *task_architectures("ConvBert"),
        Architecture("ConvBertForMaskedLM", ("mlm",), MLM),
        Architecture("ConvBertModel", bare=True),
    )

    def numbers(self, settings: Config) -> Numbers:
        numbers = super().numbers(settings)
        heads = max(1, numbers.num_heads // numbers.ratio)
        if numbers.width % (2 * heads):
            allowed = (
                f"a multiple of {2 * heads}, for {heads} heads of attention and of convolution"
            )
            raise ConfigError("config.json: hidden_size", numbers.width, allowed)
        return numbers.but(num_heads=heads, ratio=2)

    def settings(self, numbers: Numbers) -> Node:
        return super().settings(numbers.but(num_heads=2 * numbers.num_heads, ratio=2))

    def backbone(self, numbers: Numbers) -> list[NameRule]:
        narrow = numbers.table_width != numbers.width
        return [
            *EMBEDDING,
            same(*PLACES),
            *(linear("backbone.embedding.project", "embeddings_project") if narrow else []),
            *ATTENTION,
            *(group(rule, numbers.ffn_groups) for rule in INNER),
        ]

    def nodes(self, numbers: Numbers) -> Node:
        nodes = super().nodes(numbers)
        stack = nodes["model"]["stack"]
        mixed = {"_target_": f"{CELLS}.mixed_attention.MixedAttention", "kernel": numbers.kernel}
        cells = {"m": stack["cells"]["a"] | mixed}
        if numbers.ffn_groups > 1:
            own = f"{CELLS}.grouped_feedforward.GroupedFeedForward"
            cells["y"] = stack["cells"]["f"] | {"_target_": own, "groups": numbers.ffn_groups}
        else:
            cells["f"] = stack["cells"]["f"]
        return {
            **nodes,
            "model": {
                **nodes["model"],
                "classifier": {
                    "pooler": False,
                    "dense": True,
                    "activation": numbers.activation,
                    "bias": True,
                },
                "stack": {
                    **stack,
                    "layout": f"{''.join(cells)}*{numbers.num_layers}",
                    "cells": cells,
                },
            },
        }

    def head(self, name: str, numbers: Numbers, outputs: int) -> Node:
        node = super().head(name, numbers, outputs)
        own = {"activation": numbers.activation}
        return node | (own if name in ("class", "score") else {})

    def measure(self, config: Config, tensors: Weights, pad: int) -> Numbers:
        stack = (config.get("model") or {}).get("stack") or {}
        inner = "y" if "y" in str(stack.get("layout")) else "f"
        plain = rename_cells(config, {"m": "a", inner: "f"})
        cells = plain["model"]["stack"]["cells"]
        kernel = (cells.get("a") or {}).get("kernel", 9)
        groups = (cells.get("f") or {}).get("groups", 1)
        return super().measure(plain, tensors, pad).but(kernel=kernel, ffn_groups=groups, ratio=2)
