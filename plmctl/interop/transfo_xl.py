"""Transformer-XL (Dai et al., 2019, arXiv:1901.02860) as `transformers` published it up to version
4: `transfo-xl-wt103`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from plmctl.core.errors import ConfigError
from plmctl.core.values import Count, Number, Rate, Whole
from plmctl.interop.bert import encoder_nodes
from plmctl.interop.family import Architecture, Family, Node
from plmctl.interop.names import NameRule, Tensors, Weights, linear, maps, same
from plmctl.interop.settings import (
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

CELL, THEIRS = "backbone.stack.blocks.a.{i}", "layers.{i}.dec_attn"
INNER = "backbone.stack.blocks.f.{i}"
FUSED = re.compile(r"(.*layers\.\d+\.dec_attn)\.qkv_net\.weight")
SHARED = re.compile(r"((?:transformer\.)?)(r_[wr]_bias)")  # by all layers, without untie_r
TABLE, BIAS = "word_emb.emb_layers", "crit.out_layers"
# settings with one supported value
FIXED = {"attn_type": 0, "sample_softmax": -1, "adaptive": True, "tie_weight": True}


SETTINGS: Settings = (
    VOCAB,
    Key("cutoffs", "cutoffs", list[Count], read=tuple, write=list),
    Key("d_model", "width", Count),
    Key("d_embed", "cluster_width", Count),
    Key("n_head", "num_heads", Count),
    Key("d_head", "head_width", Count),
    Key("d_inner", "inner_width", Count),
    Key("n_layer", "num_layers", Count),
    Key("div_val", "div_val", Count, 4),
    Key("pre_lnorm", "pre_norm", bool, False),
    Key("mem_len", "memory", Whole, 1600),
    Key("clamp_len", "farthest", int, 1000, lambda n: n if n > 0 else None, lambda n: n or -1),
    Key("same_length", "same_length", bool, True),
    Key("proj_share_all_but_first", "rest_tied", bool, True),
    Key("tie_projs", "tie_projs", list[bool], None),
    Written("untie_r", True),
    Key("dropout", "dropout", Rate, 0.1),
    Key("dropatt", "attention_dropout", Rate, 0.0),
    Key("layer_norm_epsilon", "eps", Number, 1e-5),
    pad(written=True),
    *(Only(key, value, written=True) for key, value in FIXED.items()),
    activation("", {"relu": "relu"}),  # no file names it
)


def _find_ties(numbers: Numbers) -> list[bool]:
    """Whether the projection of each cluster is that of the embedding."""
    ties = numbers.tie_projs
    return [ties] * (len(numbers.cutoffs) + 1) if isinstance(ties, bool) else [*ties]


def _list_projected(numbers: Numbers) -> list[int]:
    """The clusters whose vectors go through a projection in the head."""
    plain = numbers.div_val == 1 and numbers.cluster_width is None
    return [] if plain else list(range(len(numbers.cutoffs) + 1))


def _find_projection(numbers: Numbers, cluster: int) -> int:
    """The number of the embedding's projection for a cluster."""
    return cluster if numbers.div_val > 1 else 0


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
    recipes: tuple[str, ...] = ("transformer_xl",)
    hub: tuple[tuple[str, int], ...] = (("transfo-xl/transfo-xl-wt103", 257),)
    stated = SETTINGS
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

    def numbers(self, settings: Config) -> Numbers:
        numbers = super().numbers(settings)
        if not numbers.cutoffs:
            allowed = "one id or more (a softmax without clusters is not supported)"
            raise ConfigError("config.json: cutoffs", [], allowed)
        width = numbers.width
        plain = {
            "cluster_width": numbers.cluster_width == width,
            "head_width": numbers.head_width * numbers.num_heads == width,
        }
        ties = numbers.tie_projs or [False, *[numbers.rest_tied] * len(numbers.cutoffs)]
        none = {name: None for name, as_wide in plain.items() if as_wide}
        return numbers.but(tie_projs=tuple(ties), **none)

    def settings(self, numbers: Numbers) -> Node:
        ties = _find_ties(numbers)
        return super().settings(
            numbers.but(
                cluster_width=numbers.cluster_width or numbers.width,
                head_width=numbers.head_width or numbers.width // numbers.num_heads,
                rest_tied=all(ties[1:]),
                tie_projs=ties,
            )
        )

    def nodes(self, numbers: Numbers) -> Node:
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
        ties = numbers.tie_projs
        return {
            "_target_": "plmctl.heads.adaptive.AdaptiveSoftmax",
            "tied": True,
            "tie_projs": ties if isinstance(ties, bool) else list(ties),
            "bias": True,
            "about": "next",
        }

    def backbone(self, numbers: Numbers) -> list[NameRule]:
        norm = "norm_in" if numbers.pre_norm else "norm_sum"
        token = "backbone.embedding.token"
        clusters = range(len(numbers.cutoffs) + 1)
        projections = sorted(
            {_find_projection(numbers, cluster) for cluster in _list_projected(numbers)}
        )
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
            *maps(
                INNER,
                "layers.{i}.pos_ff",
                {"cell.up": "CoreNet.0", "cell.down": "CoreNet.3", norm: "layer_norm"},
            ),
        ]

    def table(self, numbers: Numbers, architecture: Architecture) -> list[NameRule]:
        rules = super().table(numbers, architecture)
        if architecture.bare:
            return rules
        clusters = range(len(numbers.cutoffs) + 1)
        return [
            *rules,
            *(same(f"heads.clm.biases.{i}.weight", f"{BIAS}.{i}.bias") for i in clusters),
            *(
                same(f"heads.clm.projections.{i}.weight", f"crit.out_projs.{i}")
                for i in _list_projected(numbers)
                if not _find_ties(numbers)[i]
            ),
        ]

    def adapt(self, numbers: Numbers, tensors: Tensors) -> tuple[Numbers, Tensors]:
        """The tensors with one name for each of ours, and none twice."""
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
                    parts = _cut(adapted.pop(table), [0, *numbers.cutoffs, numbers.vocab_size])
                    adapted |= {_renumber(table, i): part for i, part in enumerate(parts)}
        return numbers, adapted

    def _is_copy(self, name: str, numbers: Numbers) -> bool:
        """Whether a tensor is computed, or tied to another one."""
        if name.endswith("pos_emb.inv_freq") or re.fullmatch(rf"{BIAS}\.\d+\.weight", name):
            return True
        match = re.fullmatch(r"crit\.out_projs\.(\d+)", name)
        ties = _find_ties(numbers)
        return bool(match and int(match[1]) < len(ties) and ties[int(match[1])])

    def complete(self, tensors: Tensors, numbers: Numbers, architecture: Architecture) -> Tensors:
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
            for i in _list_projected(numbers):
                if _find_ties(numbers)[i]:
                    home = f"{prefix}word_emb.emb_projs.{_find_projection(numbers, i)}"
                    tensors[f"crit.out_projs.{i}"] = tensors[home].clone()
        if numbers.div_val == 1:
            for table in (f"{prefix}{TABLE}.0.weight", f"{BIAS}.0.weight", f"{BIAS}.0.bias"):
                if table in tensors:
                    parts = [tensors.pop(_renumber(table, i)) for i in clusters]
                    tensors[table] = torch.cat(parts)
        steps = torch.arange(0.0, numbers.width, 2.0) / numbers.width
        return tensors | {f"{prefix}pos_emb.inv_freq": 1 / 10000**steps}

    def measure(self, config: Config, tensors: Weights, pad: int) -> Numbers:
        plain, model = super().measure(config, tensors, pad), config.get("model") or {}
        table = (model.get("embedding") or {}).get("table") or {}
        stack = model.get("stack") or {}
        attention = (stack.get("cells") or {}).get("a") or {}
        ties = ((config.get("heads") or {}).get("clm") or {}).get("tie_projs", True)
        query = tensors.get("backbone.stack.blocks.a.0.cell.q.weight")
        return plain.but(
            width=plain.width if query is None else query.shape[1],
            max_length=0,
            memory=model.get("memory") or 0,
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
