"""Transformer-XL (Dai et al., 2019, arXiv:1901.02860) as `transformers` published it up to version
4: `transfo-xl-wt103`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NotRequired

import torch
from torch import Tensor

from plmctl.core.errors import ConfigError
from plmctl.core.values import Count, Number, Rate, Whole
from plmctl.interop.bert import encoder_nodes
from plmctl.interop.family import Architecture, Family, Node, Numbers, PublishedConfig
from plmctl.interop.names import NameRule, Tensors, linear, same

CELL, THEIRS = "backbone.stack.blocks.a.{i}", "layers.{i}.dec_attn"
INNER = "backbone.stack.blocks.f.{i}"
FUSED = re.compile(r"(.*layers\.\d+\.dec_attn)\.qkv_net\.weight")
SHARED = re.compile(r"((?:transformer\.)?)(r_[wr]_bias)")  # by all layers, without untie_r
TABLE, BIAS = "word_emb.emb_layers", "crit.out_layers"
# settings with one supported value
FIXED = {"attn_type": 0, "sample_softmax": -1, "adaptive": True, "tie_weight": True}


class TransfoXLConfig(PublishedConfig):
    """The settings of `config.json` that are read."""

    cutoffs: list[Count]
    d_model: Count
    d_embed: Count
    n_head: Count
    d_head: Count
    d_inner: Count
    n_layer: Count
    div_val: NotRequired[Count]
    pre_lnorm: NotRequired[bool]
    mem_len: NotRequired[Whole]
    clamp_len: NotRequired[int]
    same_length: NotRequired[bool]
    proj_share_all_but_first: NotRequired[bool]
    tie_projs: NotRequired[list[bool]]
    dropout: NotRequired[Rate]
    dropatt: NotRequired[Rate]
    layer_norm_epsilon: NotRequired[Number]


@dataclass(frozen=True, kw_only=True)
class TransfoXLNumbers(Numbers):
    """What members of this family have beside."""

    cutoffs: tuple[int, ...]
    div_val: int
    cluster_width: int | None  # of the first cluster; None: the width of the model
    head_width: int | None  # None: as wide as the heads divide the model
    tie_projs: bool | tuple[bool, ...]
    pre_norm: bool
    same_length: bool
    farthest: int | None  # clamp_len

    @property
    def edges(self) -> list[int]:
        """Where clusters begin, and the end of the last."""
        return [0, *self.cutoffs, self.vocab_size]

    @property
    def ties(self) -> list[bool]:
        """Whether the projection of each cluster is that of the embedding."""
        clusters = len(self.cutoffs) + 1
        return (
            [self.tie_projs] * clusters if isinstance(self.tie_projs, bool) else [*self.tie_projs]
        )

    @property
    def projected(self) -> list[int]:
        """The clusters whose vectors go through a projection in the head."""
        plain = self.div_val == 1 and self.cluster_width is None
        return [] if plain else list(range(len(self.cutoffs) + 1))

    def projection(self, cluster: int) -> int:
        """The number of the embedding's projection for a cluster."""
        return cluster if self.div_val > 1 else 0


def _add_axis(ours: str, theirs: str) -> NameRule:
    """Ours is [H, 1, D]."""
    return NameRule(
        ours, (theirs,), lambda t: t[0].unsqueeze(1), lambda tensor: [tensor.squeeze(1)]
    )


class TransfoXLFamily(Family):
    """Relative attention with memory, adaptive input and softmax, `TransfoXL...`.

    Theirs attends to a memory of zeros before a text has filled it, ours to none, as the released
    training code. Its tokenizer is a pickle, which is not read.
    """

    model_type = "transfo-xl"
    systems = ("Transformer-XL",)
    schema = TransfoXLConfig
    prefix = "transformer."
    architectures: Sequence[Architecture] = (
        Architecture(
            "TransfoXLLMHeadModel",
            ("clm",),
            [
                same(f"heads.clm.{name}", f"crit.{name}")
                for name in ("cluster_weight", "cluster_bias")
            ],
        ),
        Architecture("TransfoXLModel", bare=True),
    )
    ties: Mapping[str, str] = {}
    activations: Mapping[str, str] = {"relu": "relu"}

    def numbers(self, settings: Mapping[str, Any]) -> TransfoXLNumbers:
        for key, value in FIXED.items():
            if settings.get(key, value) != value:
                allowed = f"{value} (nothing else is supported)"
                raise ConfigError(f"config.json: {key}", settings[key], allowed)
        if not settings["cutoffs"]:
            allowed = "one id or more (a softmax without clusters is not supported)"
            raise ConfigError("config.json: cutoffs", [], allowed)
        width, heads = settings["d_model"], settings["n_head"]
        shared = settings.get("proj_share_all_but_first", True)
        ties = settings.get("tie_projs") or [False, *[shared] * len(settings["cutoffs"])]
        clamp = settings.get("clamp_len", 1000)
        return TransfoXLNumbers(
            num_layers=settings["n_layer"],
            width=width,
            num_heads=heads,
            inner_width=settings["d_inner"],
            vocab_size=settings["vocab_size"],
            max_length=0,
            segments=0,
            dropout=settings.get("dropout", 0.1),
            attention_dropout=settings.get("dropatt", 0.0),
            activation="relu",
            eps=settings.get("layer_norm_epsilon", 1e-5),
            pad=settings.get("pad_token_id") or 0,
            memory=settings.get("mem_len", 1600),
            cutoffs=tuple(settings["cutoffs"]),
            div_val=settings.get("div_val", 4),
            cluster_width=None if settings["d_embed"] == width else settings["d_embed"],
            head_width=None if settings["d_head"] * heads == width else settings["d_head"],
            tie_projs=tuple(ties),
            pre_norm=settings.get("pre_lnorm", False),
            same_length=settings.get("same_length", True),
            farthest=clamp if clamp > 0 else None,
        )

    def settings(self, numbers: Numbers) -> Node:
        assert isinstance(numbers, TransfoXLNumbers)
        return {
            "model_type": self.model_type,
            "vocab_size": numbers.vocab_size,
            "cutoffs": list(numbers.cutoffs),
            "d_model": numbers.width,
            "d_embed": numbers.cluster_width or numbers.width,
            "n_head": numbers.num_heads,
            "d_head": numbers.head_width or numbers.width // numbers.num_heads,
            "d_inner": numbers.inner_width,
            "n_layer": numbers.num_layers,
            "div_val": numbers.div_val,
            "pre_lnorm": numbers.pre_norm,
            "mem_len": numbers.memory,
            "clamp_len": numbers.farthest or -1,
            "same_length": numbers.same_length,
            "proj_share_all_but_first": all(numbers.ties[1:]),
            "tie_projs": numbers.ties,
            "untie_r": True,
            "dropout": numbers.dropout,
            "dropatt": numbers.attention_dropout,
            "layer_norm_epsilon": numbers.eps,
            "pad_token_id": numbers.pad,
            **FIXED,
        }

    def nodes(self, numbers: Numbers) -> Node:
        assert isinstance(numbers, TransfoXLNumbers)
        nodes = encoder_nodes(numbers) | {
            "position": {"_target_": "plmctl.nn.positions.NoPosition"},
            "pattern": {"_target_": "plmctl.attention.patterns.causal.Causal"},
        }
        model = nodes["model"]
        model |= {
            "_target_": "plmctl.models.xlnet.XLNet",
            "two_streams": False,
            "memory": numbers.memory,
            "same_length": numbers.same_length,
            "clamp_len": numbers.farthest,
        }
        table = {
            "_target_": "plmctl.nn.adaptive.AdaptiveTable",
            "cutoffs": list(numbers.cutoffs),
            "div_val": numbers.div_val,
            "table_width": numbers.cluster_width,
            "proj_same_dim": numbers.div_val > 1,
        }
        model["embedding"] |= {"segments": 0, "norm": None, "scaled": True, "table": table}
        stack = model["stack"]
        stack["cells"]["a"] |= {
            "_target_": "plmctl.nn.cells.relative_attention.RelativeAttention",
            "segments": False,
            "head_width": numbers.head_width,
        }
        stack["cells"]["f"] |= {"dropout": numbers.dropout}
        if numbers.pre_norm:
            stack["residual"] |= {"_target_": "plmctl.nn.residual.PreNorm", "final_norm": False}
        model["initializer"]["_target_"] = "plmctl.nn.init.transformer_xl"
        model["classifier"] = {"pooler": False, "dense": False, "bias": False}
        return nodes

    def head(self, name: str, numbers: Numbers, outputs: int) -> Node:
        assert isinstance(numbers, TransfoXLNumbers)
        ties = numbers.tie_projs
        return {
            "_target_": "plmctl.heads.adaptive.AdaptiveSoftmax",
            "tied": True,
            "tie_projs": ties if isinstance(ties, bool) else list(ties),
            "bias": True,
            "about": "next",
        }

    def backbone(self, numbers: Numbers) -> list[NameRule]:
        assert isinstance(numbers, TransfoXLNumbers)
        norm = "norm_in" if numbers.pre_norm else "norm_sum"
        token = "backbone.embedding.token"
        clusters = range(len(numbers.cutoffs) + 1)
        projections = sorted({numbers.projection(cluster) for cluster in numbers.projected})
        return [
            *(same(f"{token}.tables.{i}.weight", f"{TABLE}.{i}.weight") for i in clusters),
            *(
                same(f"{token}.projections.{i}.weight", f"word_emb.emb_projs.{i}")
                for i in projections
            ),
            # these two are one tensor in files: `adapt`
            same(f"{CELL}.cell.q.weight", f"{THEIRS}.q_net.weight"),
            same(f"{CELL}.cell.kv.weight", f"{THEIRS}.kv_net.weight"),
            same(f"{CELL}.cell.place.weight", f"{THEIRS}.r_net.weight"),
            same(f"{CELL}.cell.out.weight", f"{THEIRS}.o_net.weight"),
            _add_axis(f"{CELL}.cell.content_bias", f"{THEIRS}.r_w_bias"),
            _add_axis(f"{CELL}.cell.place_bias", f"{THEIRS}.r_r_bias"),
            *linear(f"{CELL}.{norm}", f"{THEIRS}.layer_norm"),
            *linear(f"{INNER}.cell.up", "layers.{i}.pos_ff.CoreNet.0"),
            *linear(f"{INNER}.cell.down", "layers.{i}.pos_ff.CoreNet.3"),
            *linear(f"{INNER}.{norm}", "layers.{i}.pos_ff.layer_norm"),
        ]

    def table(self, numbers: Numbers, architecture: Architecture) -> list[NameRule]:
        assert isinstance(numbers, TransfoXLNumbers)
        rules = super().table(numbers, architecture)
        if architecture.bare:
            return rules
        clusters = range(len(numbers.cutoffs) + 1)
        return [
            *rules,
            *(same(f"heads.clm.biases.{i}.weight", f"{BIAS}.{i}.bias") for i in clusters),
            *(
                same(f"heads.clm.projections.{i}.weight", f"crit.out_projs.{i}")
                for i in numbers.projected
                if not numbers.ties[i]
            ),
        ]

    def adapt(self, numbers: Numbers, tensors: Tensors) -> tuple[Numbers, Tensors]:
        """The tensors with one name for each of ours, and none twice."""
        assert isinstance(numbers, TransfoXLNumbers)
        adapted: Tensors = {}
        for name, tensor in tensors.items():
            if match := FUSED.fullmatch(name):
                q, k, v = tensor.chunk(3)
                adapted[f"{match[1]}.q_net.weight"] = q
                adapted[f"{match[1]}.kv_net.weight"] = torch.cat([k, v])
            elif match := SHARED.fullmatch(name):
                for layer in range(numbers.num_layers):
                    own = f"{match[1]}layers.{layer}.dec_attn.{match[2]}"
                    adapted[own] = tensors.get(own, tensor)
            elif not self._is_copy(name, numbers):
                adapted[name] = tensor
        if numbers.div_val == 1:
            for table in (f"{TABLE}.0.weight", f"{self.prefix}{TABLE}.0.weight", f"{BIAS}.0.bias"):
                if table in adapted:
                    parts = _cut(adapted.pop(table), numbers.edges)
                    adapted |= {_renumber(table, i): part for i, part in enumerate(parts)}
        return numbers, adapted

    def _is_copy(self, name: str, numbers: TransfoXLNumbers) -> bool:
        """Whether a tensor is computed, or tied to another one."""
        if name.endswith("pos_emb.inv_freq") or re.fullmatch(rf"{BIAS}\.\d+\.weight", name):
            return True
        match = re.fullmatch(r"crit\.out_projs\.(\d+)", name)
        return bool(match and int(match[1]) < len(numbers.ties) and numbers.ties[int(match[1])])

    def complete(self, tensors: Tensors, numbers: Numbers, architecture: Architecture) -> Tensors:
        assert isinstance(numbers, TransfoXLNumbers)
        prefix = "" if architecture.bare else self.prefix
        tensors = dict(tensors)
        for layer in range(numbers.num_layers):
            where = f"{prefix}layers.{layer}.dec_attn"
            parts = [tensors.pop(f"{where}.{name}_net.weight") for name in ("q", "kv")]
            tensors[f"{where}.qkv_net.weight"] = torch.cat(parts)
        clusters = range(len(numbers.cutoffs) + 1)
        if not architecture.bare:
            for i in clusters:
                tensors[f"{BIAS}.{i}.weight"] = tensors[f"{prefix}{TABLE}.{i}.weight"].clone()
            for i in numbers.projected:
                if numbers.ties[i]:
                    home = f"{prefix}word_emb.emb_projs.{numbers.projection(i)}"
                    tensors[f"crit.out_projs.{i}"] = tensors[home].clone()
        if numbers.div_val == 1:
            for table in (f"{prefix}{TABLE}.0.weight", f"{BIAS}.0.weight", f"{BIAS}.0.bias"):
                if table in tensors:
                    parts = [tensors.pop(_renumber(table, i)) for i in clusters]
                    tensors[table] = torch.cat(parts)
        steps = torch.arange(0.0, numbers.width, 2.0) / numbers.width
        return tensors | {f"{prefix}pos_emb.inv_freq": 1 / 10000**steps}

    def measure(
        self, config: Mapping[str, Any], tensors: Mapping[str, Tensor], pad: int
    ) -> TransfoXLNumbers:
        plain, model = super().measure(config, tensors, pad), config.get("model") or {}
        table = (model.get("embedding") or {}).get("table") or {}
        stack = model.get("stack") or {}
        attention = (stack.get("cells") or {}).get("a") or {}
        ties = ((config.get("heads") or {}).get("clm") or {}).get("tie_projs", True)
        query = tensors.get("backbone.stack.blocks.a.0.cell.q.weight")
        return TransfoXLNumbers(
            **vars(plain)
            | {
                "width": plain.width if query is None else query.shape[1],
                "max_length": 0,
                "memory": model.get("memory") or 0,
            },
            cutoffs=tuple(table.get("cutoffs") or ()),
            div_val=table.get("div_val", 1),
            cluster_width=table.get("table_width"),
            head_width=attention.get("head_width"),
            tie_projs=ties if isinstance(ties, bool) else tuple(ties),
            pre_norm=str((stack.get("residual") or {}).get("_target_")).endswith("PreNorm"),
            same_length=model.get("same_length", False),
            farthest=model.get("clamp_len"),
        )


def _cut(tensor: Tensor, edges: Sequence[int]) -> list[Tensor]:
    """The rows of each cluster."""
    return [tensor[low:high] for low, high in itertools.pairwise(edges)]


def _renumber(name: str, cluster: int) -> str:
    """The name of cluster 0 for another one."""
    return re.sub(r"\.0(?=\.)", f".{cluster}", name)
