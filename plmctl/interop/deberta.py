"""DeBERTa (He et al., 2021, arXiv:2006.03654; 2023, arXiv:2111.09543) as `transformers` and
Microsoft publish it: the first version, and the second with the third.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from plmctl.core.errors import ConfigError
from plmctl.core.values import Count, Number, Whole
from plmctl.interop.bert import (
    ACTIVATIONS,
    LAYER,
    MLM,
    SETTINGS,
    TIES,
    encoder_nodes,
    encoder_rules,
    task_architectures,
    task_head,
)
from plmctl.interop.difference import spell_layouts
from plmctl.interop.family import Architecture, Family, Node, lm_head, row_classes
from plmctl.interop.names import NameRule, Tensors, Weights, linear, maps, same
from plmctl.interop.settings import Config, Key, Numbers, Only, Settings, change

ATTENTION = "plmctl.nn.cells.disentangled_attention.DisentangledAttention"
TERMS = ("c2p", "p2c")  # where a config does not name them
SELF, CELL = f"{LAYER}.attention.self", "backbone.stack.blocks.a.{i}.cell"
PLACES, CONV = "embeddings.position_embeddings.weight", "backbone.stack.blocks.c.0.cell"
DISCRIMINATOR = maps(
    "heads.discriminator",
    "mask_predictions",
    {"norm": "LayerNorm", "dense": "dense", "linear": "classifier"},
)
# the head of words in Microsoft's files, and where `legacy` is false -> where it is true
HEADS = {
    "lm_predictions.lm_head.dense": "cls.predictions.transform.dense",
    "lm_predictions.lm_head.LayerNorm": "cls.predictions.transform.LayerNorm",
    "lm_predictions.lm_head": "cls.predictions",
}
# {first version: second}, of maps with tensors of the same form
OWN = {
    "q_bias": "query_proj.bias",
    "v_bias": "value_proj.bias",
    "pos_proj.weight": "pos_key_proj.weight",
    "pos_q_proj.weight": "pos_query_proj.weight",
    "pos_q_proj.bias": "pos_query_proj.bias",
}
KINDS = tuple(f"{kind}_proj.weight" for kind in ("query", "key", "value"))


def classifier(head: str) -> list[NameRule]:
    """The rules of a pooler and a linear classifier, which are one head here."""
    return maps(f"heads.{head}", "", {"dense": "pooler.dense", "linear": "classifier"})


def _plain(rules: Sequence[NameRule]) -> list[NameRule]:
    return [replace(r, theirs=tuple(name.removeprefix(".") for name in r.theirs)) for r in rules]


def _list_terms(value: str | Sequence[str] | None) -> list[str]:
    terms = value.lower().split("|") if isinstance(value, str) else value or []
    return [term.strip() for term in terms if term.strip() not in ("", "none")]


STATED: Settings = change(
    SETTINGS,
    Key("max_position_embeddings", "max_length", Count, 512),
    Key("type_vocab_size", "segments", Whole, 0),
    Key("layer_norm_eps", "eps", Number, 1e-7),
    Key("embedding_size", "table_width", Count | None, None),
    Key("max_relative_positions", "farthest", int, -1),
    Key("relative_attention", "relative", bool, False),
    Key("position_biased_input", "biased", bool, True),
    Key("pos_att_type", "terms", str | list[str] | None, None, read=_list_terms),
    Key("pooler_hidden_act", "pooler", str, "gelu"),
    Key("legacy", "legacy", bool, True),
    Only("talking_head", False),
)
SECOND: Settings = change(
    STATED,
    Key("position_buckets", "buckets", int | None, -1, lambda n: n or 0, lambda n: n or -1),
    Key("share_att_key", "shared", bool, False),
    Key("norm_rel_ebd", "normed", str, "none", write=lambda on: "layer_norm" if on else "none"),
    Key("conv_kernel_size", "kernel", Whole, 0),
    Key("conv_act", "kernel_activation", str, "tanh"),
    Key("conv_groups", "groups_of_kernel", Count, 1),
)


class DebertaV2Family(Family):
    """Post-norm encoder with vectors of distances, `DebertaV2For...`; the files of DeBERTa 3 also
    have a detector of replaced tokens.
    """

    model_type = "deberta-v2"
    systems: tuple[str, ...] = ("DeBERTa 2", "DeBERTa 3")
    hub: tuple[tuple[str, int], ...] = (
        ("microsoft/deberta-v3-xsmall", 71),
        ("microsoft/deberta-v3-small", 141),
        ("microsoft/deberta-v3-base", 184),
        ("microsoft/deberta-v3-large", 434),
        ("microsoft/deberta-v2-xlarge", 887),
    )
    stated = SECOND
    ignored: frozenset[str] = frozenset({"pooler_hidden_size"})
    prefix = "deberta."
    first = False  # the maps are those of the first version
    architectures: Sequence[Architecture] = (
        *(
            replace(each, rules=_plain(each.rules))
            for each in row_classes("DebertaV2ForSequenceClassification", classifier)
        ),
        *task_architectures("DebertaV2"),
        Architecture("DebertaV2ForMaskedLM", ("mlm", "discriminator"), [*MLM, *DISCRIMINATOR]),
        Architecture("DebertaV2ForMaskedLM", ("mlm",), MLM),
        Architecture(
            "DebertaV2ForMultipleChoice", ("choice",), _plain(classifier("choice")), outputs=1
        ),
        Architecture("DebertaV2Model", ("discriminator",), DISCRIMINATOR),
        Architecture("DebertaV2Model", bare=True),
    )
    ties = TIES

    def numbers(self, settings: Config) -> Numbers:
        found = super().numbers(settings)
        if wrong := [term for term in found.terms if term not in ("c2p", "p2c")]:
            raise ConfigError("config.json: pos_att_type", wrong[0], "c2p, p2c or both")
        if found.terms and not found.relative:
            allowed = "true, where pos_att_type names scores of distances"
            raise ConfigError("config.json: relative_attention", False, allowed)
        own = {"buckets": 0, "shared": False, "normed": "none", "kernel": 0, "groups_of_kernel": 1}
        found = Numbers(**own | {"kernel_activation": "tanh"} | vars(found))
        for key, name in (
            ("conv_act", found.kernel_activation),
            ("pooler_hidden_act", found.pooler),
        ):
            if name not in ACTIVATIONS:
                raise ConfigError(f"config.json: {key}", name, f"one of {', '.join(ACTIVATIONS)}")
        return found.but(
            farthest=found.farthest if found.farthest > 0 else found.max_length,
            buckets=max(0, found.buckets),
            terms=[term for term in TERMS if term in found.terms],
            normed="layer_norm" in found.normed.lower() and found.relative,
            table_width=found.table_width or found.width,
            decodes=False,
            kernel_activation=ACTIVATIONS[found.kernel_activation],
            pooler=ACTIVATIONS[found.pooler],
        )

    def settings(self, numbers: Numbers) -> Node:
        names = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}
        return super().settings(
            numbers.but(
                kernel_activation=names[numbers.kernel_activation], pooler=names[numbers.pooler]
            )
        )

    def remember(self, numbers: Numbers) -> Node:
        return {"legacy": numbers.legacy}

    def adapt(self, numbers: Numbers, tensors: Tensors) -> tuple[Numbers, Tensors]:
        tensors = {name: t for name, t in tensors.items() if not name.endswith(".position_ids")}
        if any(name.startswith("lm_predictions.") for name in tensors):
            numbers, tensors = numbers.but(legacy=False), _rename(tensors, HEADS)
        places = any(name in tensors for name in (PLACES, self.prefix + PLACES))
        return numbers.but(decodes=places and not numbers.biased), tensors

    def complete(self, tensors: Tensors, numbers: Numbers, architecture: Architecture) -> Tensors:
        if numbers.legacy:
            return tensors
        return _rename(tensors, {ours: theirs for theirs, ours in HEADS.items()})

    def backbone(self, numbers: Numbers) -> list[NameRule]:
        own = [
            rule
            for ours, theirs in (("q", "query"), ("k", "key"), ("v", "value"))
            for rule in linear(
                f"{CELL}.{ours}", f"{SELF}.{theirs}_proj", bias=ours != "k" or not self.first
            )
        ]
        terms = [] if numbers.shared else numbers.terms
        if "c2p" in terms:
            own += linear(f"{CELL}.place_key", f"{SELF}.pos_key_proj", bias=not self.first)
        if "p2c" in terms:
            own += linear(f"{CELL}.place_query", f"{SELF}.pos_query_proj")
        rules = encoder_rules(qkv=own)
        if numbers.relative:
            rules.append(same("backbone.position.vectors.weight", "encoder.rel_embeddings.weight"))
        if numbers.normed:
            rules += linear("backbone.position.norm", "encoder.LayerNorm")
        if numbers.table_width != numbers.width:
            rules += linear("backbone.embedding.project", "embeddings.embed_proj", bias=False)
        if numbers.kernel:
            rules += linear(f"{CONV}.conv", "encoder.conv.conv")
            rules += linear(f"{CONV}.norm", "encoder.conv.LayerNorm")
        if numbers.biased or numbers.decodes:
            ours = "backbone.position.table.weight" if numbers.biased else "backbone.places.weight"
            rules.append(same(ours, PLACES))
        return rules

    def nodes(self, numbers: Numbers) -> Node:
        nodes, narrow = encoder_nodes(numbers), numbers.table_width != numbers.width
        model, dropout = nodes["model"], {"dropout": numbers.dropout}
        norm = model["embedding"]["norm"]
        nodes["position"] = {
            "_target_": "plmctl.nn.disentangled.Disentangled",
            "max_distance": numbers.farthest if numbers.relative else None,
            "buckets": (numbers.buckets or None) if numbers.relative else None,
            "norm": norm if numbers.normed else None,
            **dropout,
            "vector_width": numbers.width if narrow else None,
            "absolute": numbers.max_length if numbers.biased else None,
        }
        model["_target_"] = "plmctl.models.deberta.Deberta"
        model["decoder_steps"] = 2 if numbers.decodes else 0
        if numbers.decodes:
            model["max_length"] = numbers.max_length
        model["embedding"] |= {"project_first": True}
        model["embedding"]["table_width"] = numbers.table_width if narrow else None
        stack = model["stack"]
        stack["cells"]["a"] |= {
            "_target_": ATTENTION,
            "terms": numbers.terms,
            "shared": numbers.shared,
            "key_bias": not self.first,
        }
        if numbers.kernel:
            stack["layout"] = f"afc af*{numbers.num_layers - 1}".removesuffix(" af*0")
            stack["cells"]["c"] = {
                "_target_": "plmctl.nn.cells.embedding_convolution.EmbeddingConvolution",
                "_partial_": True,
                "kernel": numbers.kernel,
                "groups": numbers.groups_of_kernel,
                "activation": numbers.kernel_activation,
                "eps": numbers.eps,
                **dropout,
            }
        model["initializer"] = {"_target_": "plmctl.nn.init.normal", "_partial_": True, "std": 0.02}
        model["classifier"] = {
            "pooler": False,
            "dense": True,
            "bias": True,
            "activation": numbers.pooler,
        }
        return nodes

    def compared(self, numbers: Numbers) -> Node:
        nodes = self.nodes(numbers)
        return spell_layouts(nodes) if numbers.kernel else nodes

    def find_differences(self, config: Config, numbers: Numbers) -> list[str]:
        model, stack = config["model"], config["model"].get("stack") or {}
        cells = dict(stack.get("cells") or {})
        if "a" in cells and cells["a"].get("_target_") == ATTENTION:  # in any order, or by default
            cells["a"] = {**cells["a"], "terms": numbers.terms}
            model = {**model, "stack": {**stack, "cells": cells}}
        config = {**config, "model": model}
        if numbers.table_width == numbers.width:  # there is no map of the embedding
            plain = {"table_width": None, "project_first": True}
            embedding = {**(model.get("embedding") or {}), **plain}
            config = {**config, "model": {**model, "embedding": embedding}}
        return super().find_differences(config, numbers)

    def measure(self, config: Config, tensors: Weights, pad: int) -> Numbers:
        plain, position = super().measure(config, tensors, pad), config.get("position") or {}
        model = config.get("model") or {}
        cells = (model.get("stack") or {}).get("cells") or {}
        attention, kernel = cells.get("a") or {}, cells.get("c") or {}
        if "c" not in (model.get("stack") or {}).get("layout", ""):
            kernel = {}
        absolute, places = position.get("absolute"), tensors.get("backbone.places.weight")
        farthest = position.get("max_distance") or 0
        return plain.but(
            relative="backbone.position.vectors.weight" in tensors,
            farthest=farthest or plain.max_length or 512,
            max_length=absolute or (farthest or 512 if places is None else len(places)),
            terms=[term for term in TERMS if term in attention.get("terms", TERMS)],
            shared=attention.get("shared", False),
            buckets=position.get("buckets") or 0,
            normed=position.get("norm") is not None,
            biased=absolute is not None,
            decodes=places is not None,
            kernel=kernel.get("kernel", 0),
            kernel_activation=kernel.get("activation", "tanh"),
            groups_of_kernel=kernel.get("groups", 1),
            pooler=(model.get("classifier") or {}).get("activation") or "gelu",
            legacy=(config.get("origin") or {}).get("legacy", False),
        )

    def describe_reading(self, numbers: Numbers) -> str:
        if not numbers.decodes:
            return ""
        return (
            "its head of words reads the enhanced mask decoder, as in pretraining; `transformers`"
            " has none (model.decoder_steps=0: no decoder)"
        )

    def head(self, name: str, numbers: Numbers, outputs: int) -> Node:
        own: Node = {"activation": numbers.activation, "eps": numbers.eps}
        if name == "discriminator":
            return {"_target_": "plmctl.heads.discriminator.Discriminator", "context": True, **own}
        if name == "mlm":
            return lm_head(numbers, transform=True, **own)
        node = task_head(name, numbers, outputs)
        dense = {"dense": True, "activation": numbers.pooler}
        return node | (dense if name in ("class", "score", "choice") else {})


class DebertaFamily(DebertaV2Family):
    """The first version: one fused map without a bias for keys, whose rows are grouped by head, and
    a vector for each distance.
    """

    model_type = "deberta"
    systems = ("DeBERTa",)
    recipes: tuple[str, ...] = ("deberta",)
    hub: tuple[tuple[str, int], ...] = (
        ("microsoft/deberta-base", 139),
        ("microsoft/deberta-large", 405),
    )
    stated = STATED
    first = True
    architectures = tuple(
        replace(each, name=each.name.replace("V2", ""))
        for each in DebertaV2Family.architectures
        if "choice" not in each.heads
    )

    def adapt(self, numbers: Numbers, tensors: Tensors) -> tuple[Numbers, Tensors]:
        numbers, tensors = super().adapt(numbers, tensors)
        renamed: Tensors = {}
        for name, tensor in tensors.items():
            start, middle, end = name.partition(".attention.self.")
            if middle and end == "in_proj.weight":
                parts = tensor.unflatten(0, (numbers.num_heads, 3, -1)).unbind(1)
                for kind, part in zip(KINDS, parts, strict=True):
                    renamed[start + middle + kind] = part.flatten(0, 1)
            else:
                renamed[start + middle + (OWN.get(end, end) if middle else end)] = tensor
        return numbers, renamed

    def complete(self, tensors: Tensors, numbers: Numbers, architecture: Architecture) -> Tensors:
        theirs, names = dict[str, Tensor](), {second: first for first, second in OWN.items()}
        for name, tensor in super().complete(tensors, numbers, architecture).items():
            start, middle, end = name.partition(".attention.self.")
            if middle and end == KINDS[0]:
                parts = [tensors[start + middle + kind] for kind in KINDS]
                heads = [part.unflatten(0, (numbers.num_heads, -1)) for part in parts]
                theirs[f"{start}{middle}in_proj.weight"] = torch.stack(heads, 1).flatten(0, 2)
            elif not (middle and end in KINDS):
                theirs[start + middle + (names.get(end, end) if middle else end)] = tensor
        return theirs


def _rename(tensors: Tensors, names: Mapping[str, str]) -> Tensors:
    """`tensors` with other beginnings of their names, the longest first."""
    renamed: Tensors = {}
    for name, tensor in tensors.items():
        start = next((s for s in names if re.match(re.escape(s) + r"\.", name)), "")
        renamed[names[start] + name.removeprefix(start) if start else name] = tensor
    return renamed
