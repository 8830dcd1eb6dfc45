"""Reformer (Kitaev et al., 2020) as `transformers` publishes it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NotRequired

from torch import Tensor

from plmctl.core.errors import ConfigError
from plmctl.core.used_cells import drop_unused_cells
from plmctl.core.values import Count, Number, Rate, Whole
from plmctl.interop import bert
from plmctl.interop.bert import encoder_nodes, task_head
from plmctl.interop.difference import list_differences, spell_layouts
from plmctl.interop.family import Architecture, Family, Node, Numbers, PublishedConfig
from plmctl.interop.names import NameRule, linear, same
from plmctl.nn.layout import parse

LETTERS = {"local": "b", "lsh": "h"}  # kinds of attention, by the letters of conf/model
MAPS = {"b": ("query", "key", "value"), "h": ("query_key", "value")}
# version 5 of transformers has this bias and leaves it out of its logits
UNUSED_BIAS = "transformers adds it to the logits up to version 4"
# settings with one value that our cells have
EXPECTED = {
    "local_num_chunks_before": 1,
    "local_num_chunks_after": 0,
    "lsh_num_chunks_before": 1,
    "lsh_num_chunks_after": 0,
}


class ReformerConfig(PublishedConfig):
    """The settings of `config.json` that are read."""

    hidden_size: NotRequired[Count]
    num_attention_heads: NotRequired[Count]
    attention_head_size: NotRequired[Count]
    feed_forward_size: NotRequired[Count]
    attn_layers: NotRequired[list[Literal["local", "lsh"]]]
    local_attn_chunk_length: NotRequired[Count]
    lsh_attn_chunk_length: NotRequired[Count]
    local_num_chunks_before: NotRequired[Whole]
    local_num_chunks_after: NotRequired[Whole]
    lsh_num_chunks_before: NotRequired[Whole]
    lsh_num_chunks_after: NotRequired[Whole]
    num_hashes: NotRequired[Count]
    num_buckets: NotRequired[Count | list[Count] | None]
    hash_seed: NotRequired[Whole | None]
    is_decoder: NotRequired[bool]
    axial_pos_embds: NotRequired[bool]
    axial_pos_shape: NotRequired[list[Count]]
    axial_pos_embds_dim: NotRequired[list[Count]]
    max_position_embeddings: NotRequired[Count]
    hidden_act: NotRequired[str]
    hidden_dropout_prob: NotRequired[Rate]
    layer_norm_eps: NotRequired[Number]


@dataclass(frozen=True, kw_only=True)
class ReformerNumbers(Numbers):
    """What members of this family have beside."""

    attention: str  # the letter of each layer's attention
    head_width: int
    chunks: Mapping[str, int]  # by letter
    rounds: int
    buckets: int | list[int] | None
    hash_seed: int
    causal: bool
    # of axial positions, both empty: one vector for each position
    shape: tuple[int, ...]
    widths: tuple[int, ...]


def _lm(head: str) -> list[NameRule]:
    bias = same(f"heads.{head}.bias", "lm_head.bias")
    return [same(f"heads.{head}.weight", "lm_head.decoder.weight"), replace(bias, note=UNUSED_BIAS)]


class ReformerFamily(Family):
    """Two streams through local and LSH attention, with axial positions, `Reformer...`."""

    model_type = "reformer"
    systems = ("Reformer",)
    schema = ReformerConfig
    prefix = "reformer."
    architectures = (
        Architecture("ReformerModelWithLMHead", ("clm",), _lm("clm")),
        Architecture("ReformerForMaskedLM", ("mlm",), _lm("mlm")),
        Architecture(
            "ReformerForQuestionAnswering", ("span",), linear("heads.span.linear", "qa_outputs")
        ),
        Architecture("ReformerModel", bare=True),
    )
    ties: Mapping[str, str] = {}
    activations: Mapping[str, str] = bert.ACTIVATIONS

    def numbers(self, settings: Mapping[str, Any]) -> ReformerNumbers:
        for key, value in EXPECTED.items():
            if settings.get(key, value) != value:
                allowed = f"{value} (nothing else is supported)"
                raise ConfigError(f"config.json: {key}", settings[key], allowed)
        axial = settings.get("axial_pos_embds", True)
        shape = tuple(settings.get("axial_pos_shape", (64, 64))) if axial else ()
        widths = tuple(settings.get("axial_pos_embds_dim", (64, 192))) if axial else ()
        layers = settings.get("attn_layers", ["local", "lsh"] * 3)
        return ReformerNumbers(
            num_layers=len(layers),
            width=settings.get("hidden_size", 256),
            num_heads=settings.get("num_attention_heads", 12),
            inner_width=settings.get("feed_forward_size", 512),
            vocab_size=settings["vocab_size"],
            max_length=math.prod(shape) if axial else settings.get("max_position_embeddings", 4096),
            segments=0,
            dropout=settings.get("hidden_dropout_prob", 0.05),
            attention_dropout=settings.get("lsh_attention_probs_dropout_prob", 0.0),
            activation=self.activation(settings.get("hidden_act", "relu"), "hidden_act"),
            eps=settings.get("layer_norm_eps", 1e-12),
            tied=False,
            pad=settings.get("pad_token_id") or 0,
            attention="".join(LETTERS[layer] for layer in layers),
            head_width=settings.get("attention_head_size", 64),
            chunks={
                letter: settings.get(f"{kind}_attn_chunk_length", 64)
                for kind, letter in LETTERS.items()
            },
            rounds=settings.get("num_hashes", 1),
            buckets=settings.get("num_buckets"),
            hash_seed=settings.get("hash_seed") or 0,
            causal=settings.get("is_decoder", False),
            shape=shape,
            widths=widths,
        )

    def settings(self, numbers: Numbers) -> Node:
        assert isinstance(numbers, ReformerNumbers)
        kinds = {letter: kind for kind, letter in LETTERS.items()}
        position: Node = {"axial_pos_embds": bool(numbers.shape)}
        if numbers.shape:
            position |= {
                "axial_pos_shape": list(numbers.shape),
                "axial_pos_embds_dim": list(numbers.widths),
            }
        return {
            "model_type": self.model_type,
            "vocab_size": numbers.vocab_size,
            "hidden_size": numbers.width,
            "num_attention_heads": numbers.num_heads,
            "attention_head_size": numbers.head_width,
            "feed_forward_size": numbers.inner_width,
            "attn_layers": [kinds[letter] for letter in numbers.attention],
            **{f"{kinds[b]}_attn_chunk_length": size for b, size in numbers.chunks.items()},
            **EXPECTED,
            "num_hashes": numbers.rounds,
            "num_buckets": numbers.buckets,
            # none for ours of 0: there, a seed fixes dropout in training, too
            "hash_seed": numbers.hash_seed or None,
            "is_decoder": numbers.causal,
            **position,
            "max_position_embeddings": numbers.max_length,
            "hidden_act": self.activation_name(numbers.activation),
            "hidden_dropout_prob": numbers.dropout,
            "local_attention_probs_dropout_prob": numbers.attention_dropout,
            "lsh_attention_probs_dropout_prob": numbers.attention_dropout,
            "layer_norm_eps": numbers.eps,
            "initializer_range": 0.02,
            "tie_word_embeddings": False,
        }

    def nodes(self, numbers: Numbers) -> Node:
        assert isinstance(numbers, ReformerNumbers)
        nodes = encoder_nodes(numbers)
        kind = "causal.Causal" if numbers.causal else "base.Full"
        nodes["pattern"] = {"_target_": f"plmctl.attention.patterns.{kind}"}
        if numbers.shape:
            nodes["position"] = {
                "_target_": "plmctl.nn.axial.Axial",
                "shape": list(numbers.shape),
                "widths": list(numbers.widths),
                "max_length": numbers.max_length,
            }
        model = nodes["model"]
        model["embedding"] |= {"segments": 0, "norm": None}
        stack = model["stack"]
        stack["layout"] = " ".join(f"{letter}f" for letter in numbers.attention)
        stack |= {"reversible": True, "join": "concatenate"}
        stack["residual"]["_target_"] = "plmctl.nn.residual.PreNorm"
        both: Node = {
            "_partial_": True,
            "num_heads": numbers.num_heads,
            "head_width": numbers.head_width,
            "causal": numbers.causal,
            "dropout": numbers.attention_dropout,
        }
        own: dict[str, Node] = {
            "b": {"_target_": "plmctl.nn.cells.local_attention.LocalAttention", "wraps": True},
            "h": {
                "_target_": "plmctl.nn.cells.lsh_attention.LSHAttention",
                "variant": "released",
                "rounds": numbers.rounds,
                "buckets": numbers.buckets,
                "hash_seed": numbers.hash_seed,
            },
        }
        stack["cells"] = {
            "f": stack["cells"]["f"],
            **{
                letter: both | own[letter] | {"chunk": numbers.chunks[letter]}
                for letter in sorted(set(numbers.attention))
            },
        }
        model["classifier"] = {"pooler": False, "dense": False, "bias": True}
        return nodes

    def head(self, name: str, numbers: Numbers, outputs: int) -> Node:
        if name not in ("clm", "mlm"):
            return task_head(name, numbers, outputs)
        return {
            "_target_": "plmctl.heads.lm.LMHead",
            "tied": False,
            "transform": False,
            "bias": True,
            "about": "next" if name == "clm" else "text",
        }

    def backbone(self, numbers: Numbers) -> list[NameRule]:
        assert isinstance(numbers, ReformerNumbers)
        rules = [
            same("backbone.embedding.token.weight", "embeddings.word_embeddings.weight"),
            *linear("backbone.stack.final_norm", "encoder.layer_norm"),
        ]
        where = "embeddings.position_embeddings"
        if not numbers.shape:
            rules.append(same("backbone.position.table.weight", f"{where}.embedding.weight"))
        for axis in range(len(numbers.shape)):
            rules.append(
                _reshape(
                    f"backbone.position.tables.{axis}.weight",
                    f"{where}.weights.{axis}",
                    axis,
                    len(numbers.shape),
                )
            )
        for number, letter in enumerate(numbers.attention):
            cell = f"backbone.stack.blocks.{letter}.{numbers.attention[:number].count(letter)}"
            inner, theirs = f"backbone.stack.blocks.f.{number}", f"encoder.layers.{number}"
            maps = [f"{theirs}.attention.self_attention.{name}" for name in MAPS[letter]]
            rules += [
                *linear(f"{cell}.cell.qkv", *maps, bias=False),
                *linear(f"{cell}.cell.out", f"{theirs}.attention.output.dense", bias=False),
                *linear(f"{cell}.norm_in", f"{theirs}.attention.layer_norm"),
                *linear(f"{inner}.cell.up", f"{theirs}.feed_forward.dense.dense"),
                *linear(f"{inner}.cell.down", f"{theirs}.feed_forward.output.dense"),
                *linear(f"{inner}.norm_in", f"{theirs}.feed_forward.layer_norm"),
            ]
        return rules

    def measure(
        self, config: Mapping[str, Any], tensors: Mapping[str, Tensor], pad: int
    ) -> ReformerNumbers:
        plain = super().measure(config, tensors, pad)
        stack = config["model"].get("stack") or {}
        layout, cells = stack.get("layout", ""), stack.get("cells") or {}
        steps = parse(layout) if layout else []
        # a model without such cells is compared with one that has a single layer
        attention = "".join(step.letter for step in steps if step.letter in MAPS) or "b"
        used: Node = {letter: cells.get(letter) or {} for letter in attention}
        first: Node = used[attention[0]]
        hashed: Node = used.get("h", {})
        tables = {
            name: tensor
            for name, tensor in tensors.items()
            if name.startswith("backbone.position.tables.")
        }
        sizes = [tables[name].shape for name in sorted(tables)]
        heads = first.get("num_heads", 1)
        return ReformerNumbers(
            **vars(plain)
            | {
                "num_layers": len(attention),
                "num_heads": heads,
                "attention_dropout": first.get("dropout", 0.0),
                "max_length": math.prod(size[0] for size in sizes) if sizes else plain.max_length,
                "tied": False,
            },
            attention=attention,
            head_width=first.get("head_width") or plain.width // heads,
            chunks={letter: cell.get("chunk", 64) for letter, cell in used.items()},
            rounds=hashed.get("rounds", 1),
            buckets=hashed.get("buckets"),
            hash_seed=hashed.get("hash_seed", 0),
            causal=bool(first.get("causal", False)),
            shape=tuple(size[0] for size in sizes),
            widths=tuple(size[1] for size in sizes),
        )

    def find_differences(self, config: Mapping[str, Any], numbers: Numbers) -> list[str]:
        """As of every family; what our settings leave to a rule counts as what the rule gives."""
        assert isinstance(numbers, ReformerNumbers)
        published: Node = spell_layouts(self.nodes(numbers))
        nodes = {name: drop_unused_cells(config[name]) for name in published if name != "size"}
        position = dict(nodes["position"])
        for name, value in (("shape", numbers.shape), ("widths", numbers.widths)):
            if position.get(name, ...) is None:
                position[name] = list(value)
        stack = nodes["model"].get("stack") or {}
        cells = {
            letter: {**cell, "head_width": cell.get("head_width") or numbers.head_width}
            if letter in MAPS
            else cell
            for letter, cell in (stack.get("cells") or {}).items()
        }
        model = {**nodes["model"], "stack": {**stack, "cells": cells}}
        ours = {**nodes, "position": position, "model": model}
        return list_differences(ours, {name: published[name] for name in nodes}, "")


def _reshape(ours: str, theirs: str, axis: int, axes: int) -> NameRule:
    """Their table of an axis has a dimension of size 1 for each other axis."""

    def widen(table: Tensor) -> Tensor:
        return table.view([-1 if other == axis else 1 for other in range(axes)] + [table.shape[1]])

    return NameRule(
        ours,
        (theirs,),
        lambda tensors: tensors[0].reshape(-1, tensors[0].shape[-1]),
        lambda table: [widen(table)],
    )
