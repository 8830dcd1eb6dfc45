"""Reformer (Kitaev et al., 2020) as `transformers` publishes it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from torch import Tensor

from plmctl.core.used_cells import drop_unused_cells
from plmctl.core.values import Count, Number, Rate, Whole
from plmctl.interop import bert
from plmctl.interop.bert import encoder_nodes, task_head
from plmctl.interop.difference import list_differences, spell_layouts
from plmctl.interop.family import Architecture, Family, Node, linear_class, lm_head
from plmctl.interop.names import NameRule, Weights, linear, maps, same
from plmctl.interop.settings import (
    VOCAB,
    Also,
    Config,
    Key,
    Numbers,
    Only,
    Settings,
    Written,
    activation,
    pad,
)
from plmctl.nn.layout import parse

LETTERS = {"local": "b", "lsh": "h"}  # kinds of attention, by the letters of conf/model
KINDS = {letter: kind for kind, letter in LETTERS.items()}
MAPS = {"b": "query self_attention.key self_attention.value", "h": "query_key self_attention.value"}
# version 5 of transformers has this bias and leaves it out of its logits
UNUSED_BIAS = "transformers adds it to the logits up to version 4"
# settings with one value that our cells have
EXPECTED = {
    "local_num_chunks_before": 1,
    "local_num_chunks_after": 0,
    "lsh_num_chunks_before": 1,
    "lsh_num_chunks_after": 0,
}


SETTINGS: Settings = (
    VOCAB,
    Key("hidden_size", "width", Count, 256),
    Key("num_attention_heads", "num_heads", Count, 12),
    Key("attention_head_size", "head_width", Count, 64),
    Key("feed_forward_size", "inner_width", Count, 512),
    Key(  # the letter of each layer's attention
        "attn_layers",
        "attention",
        list[Literal["local", "lsh"]],
        ["local", "lsh"] * 3,
        read=lambda kinds: "".join(LETTERS[kind] for kind in kinds),
        write=lambda letters: [KINDS[letter] for letter in letters],
    ),
    Key("local_attn_chunk_length", "local_chunk", Count, 64, written=False),
    Key("lsh_attn_chunk_length", "lsh_chunk", Count, 64, written=False),
    *(Only(key, value, written=True) for key, value in EXPECTED.items()),
    Key("num_hashes", "rounds", Count, 1),
    Key("num_buckets", "buckets", Count | list[Count] | None, None),
    # none for ours of 0: there, a seed fixes dropout in training, too
    Key("hash_seed", "hash_seed", Whole | None, None, lambda n: n or 0, lambda n: n or None),
    Key("is_decoder", "causal", bool, False),
    Key("axial_pos_embds", "axial", bool, True),
    Key("axial_pos_shape", "shape", list[Count], [64, 64], tuple, list),
    Key("axial_pos_embds_dim", "widths", list[Count], [64, 192], tuple, list),
    Key("max_position_embeddings", "max_length", Count, 4096),
    activation("hidden_act", bert.ACTIVATIONS, "relu"),
    Key("hidden_dropout_prob", "dropout", Rate, 0.05),
    Also("local_attention_probs_dropout_prob", "attention_dropout"),
    Key("lsh_attention_probs_dropout_prob", "attention_dropout", Rate, 0.0),
    Key("layer_norm_eps", "eps", Number, 1e-12),
    Written("initializer_range", 0.02),
    Written("tie_word_embeddings", False),
    pad(written=False),
)


def _lm(head: str) -> list[NameRule]:
    bias = same(f"heads.{head}.bias", "lm_head.bias")
    return [same(f"heads.{head}.weight", "lm_head.decoder.weight"), replace(bias, note=UNUSED_BIAS)]


class ReformerFamily(Family):
    """Two streams through local and LSH attention, with axial positions, `Reformer...`."""

    model_type = "reformer"
    systems = ("Reformer",)
    recipes: tuple[str, ...] = ("reformer",)
    hub: tuple[tuple[str, int], ...] = (
        ("google/reformer-crime-and-punishment", 3),
        ("google/reformer-enwik8", 149),
    )
    stated = SETTINGS
    ignored = frozenset({"axial_norm_std", "num_hidden_layers"})
    prefix = "reformer."
    architectures = (
        Architecture("ReformerModelWithLMHead", ("clm",), _lm("clm")),
        Architecture("ReformerForMaskedLM", ("mlm",), _lm("mlm")),
        linear_class("ReformerForQuestionAnswering", "span", "qa_outputs"),
        Architecture("ReformerModel", bare=True),
    )
    ties: Mapping[str, str] = {}

    def numbers(self, settings: Config) -> Numbers:
        numbers = super().numbers(settings)
        axial = numbers.axial  # otherwise one vector for each position
        return numbers.but(
            num_layers=len(numbers.attention),
            max_length=math.prod(numbers.shape) if axial else numbers.max_length,
            tied=False,
            chunks={letter: getattr(numbers, f"{kind}_chunk") for letter, kind in KINDS.items()},
            shape=numbers.shape if axial else (),
            widths=numbers.widths if axial else (),
        )

    def settings(self, numbers: Numbers) -> Node:
        settings = super().settings(numbers.but(axial=bool(numbers.shape)))
        unused = () if numbers.shape else ("axial_pos_shape", "axial_pos_embds_dim")
        chunks = {f"{KINDS[b]}_attn_chunk_length": size for b, size in numbers.chunks.items()}
        return {key: value for key, value in settings.items() if key not in unused} | chunks

    def nodes(self, numbers: Numbers) -> Node:
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
        return lm_head(numbers, tied=False, about="next" if name == "clm" else "text")

    def backbone(self, numbers: Numbers) -> list[NameRule]:
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
            flat = {"qkv": f"self_attention.{MAPS[letter]}", "out": "output.dense"}
            rules += [
                *maps(f"{cell}.cell", f"{theirs}.attention", flat, bias=False),
                *linear(f"{cell}.norm_in", f"{theirs}.attention.layer_norm"),
                *maps(
                    inner,
                    f"{theirs}.feed_forward",
                    {
                        "cell.up": "dense.dense",
                        "cell.down": "output.dense",
                        "norm_in": "layer_norm",
                    },
                ),
            ]
        return rules

    def measure(self, config: Config, tensors: Weights, pad: int) -> Numbers:
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
        return plain.but(
            num_layers=len(attention),
            num_heads=heads,
            attention_dropout=first.get("dropout", 0.0),
            max_length=math.prod(size[0] for size in sizes) if sizes else plain.max_length,
            tied=False,
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

    def find_differences(self, config: Config, numbers: Numbers) -> list[str]:
        """As of every family; what our settings leave to a rule counts as what the rule gives."""
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
