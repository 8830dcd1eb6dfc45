"""LUKE (Yamada et al., 2020, arXiv:2010.01057) as `transformers` publishes it."""

from __future__ import annotations

import torch

from plmctl.core.errors import ConfigError
from plmctl.core.values import Count
from plmctl.interop.bert import LAYER, OWN_POOLER, task_architectures
from plmctl.interop.family import Architecture, Node
from plmctl.interop.names import NameRule, Tensors, Weights, linear, same, skip_rows, take_rows
from plmctl.interop.roberta import MLM, RobertaFamily
from plmctl.interop.settings import Config, Key, Numbers, change
from plmctl.nn.entity_tokens import FIRST

WORDS, DECODER = "embeddings.word_embeddings.weight", "lm_head.decoder.weight"
OURS, THEIRS = "backbone.entities", "entity_embeddings"
TABLE = f"{OURS}.table.weight"
QUERIES = "backbone.stack.blocks.a.{i}.cell.queries"
PREDICTIONS = "entity_predictions"
ENTITIES: list[NameRule] = [
    *linear("heads.entities.dense", f"{PREDICTIONS}.transform.dense"),
    *linear("heads.entities.norm", f"{PREDICTIONS}.transform.LayerNorm"),
    # rows of the entities alone: the first rows of the table are none
    skip_rows("heads.entities.bias", f"{PREDICTIONS}.bias", rows=FIRST),
]
TIES = {
    "lm_head.decoder.bias": "lm_head.bias",
    f"{PREDICTIONS}.decoder.weight": f"{THEIRS}.entity_embeddings.weight",
}


class LukeFamily(RobertaFamily):
    """RoBERTa's encoder with tokens of entities behind the words.

    The positions of mentions are those of their tokens, from 0, in a table as long as that of
    words.
    """

    model_type = "luke"
    systems = ("LUKE",)
    recipes: tuple[str, ...] = ("luke",)
    hub: tuple[tuple[str, int], ...] = (
        ("studio-ousia/luke-base", 253),
        ("studio-ousia/luke-large", 484),
    )
    stated = change(
        RobertaFamily.stated,
        # without the first rows of the table, which are none
        Key(
            "entity_vocab_size",
            "entities",
            Count,
            500000,
            read=lambda rows: rows - FIRST,
            write=lambda entities: entities + FIRST,
        ),
        Key("entity_emb_size", "entity_width", Count | None, 256),
        # a query map for each pair of words and entities
        Key("use_entity_aware_attention", "aware", bool, True),
    )
    prefix = "luke."
    architectures = (
        *task_architectures("Luke"),
        Architecture("LukeForMaskedLM", ("mlm", "entities"), [*MLM, *ENTITIES]),
        Architecture("LukeModel", ("pooler",), OWN_POOLER, bare=True),
        Architecture("LukeModel", bare=True),
    )
    ties = TIES

    def numbers(self, settings: Config) -> Numbers:
        # it says so of entities; whether the head of words has a table of its own the weights say
        plain = super().numbers(settings)
        if plain.segments != 1:
            raise ConfigError("config.json: type_vocab_size", plain.segments, "1, nothing else")
        if not plain.tied:
            raise ConfigError("config.json: tie_word_embeddings", False, "true, nothing else")
        if plain.entities < 1:
            allowed = f"{FIRST + 1} or more: padding, unknown, hidden, and entities"
            raise ConfigError("config.json: entity_vocab_size", plain.entities + FIRST, allowed)
        return plain.but(entity_width=plain.entity_width or plain.width)

    def settings(self, numbers: Numbers) -> Node:
        return super().settings(numbers.but(tied=True))

    def backbone(self, numbers: Numbers) -> list[NameRule]:
        rows, before = numbers.max_length, numbers.pad + 1
        places = f"{OURS}.position.weight", f"{THEIRS}.position_embeddings.weight"
        own = f"{LAYER}.attention.self"
        pairs = [f"{own}.{pair}_query" for pair in ("w2e", "e2w", "e2e")] if numbers.aware else []
        return [
            *super().backbone(numbers),
            same(TABLE, f"{THEIRS}.entity_embeddings.weight"),
            same(f"{OURS}.project.weight", f"{THEIRS}.entity_embedding_dense.weight"),
            same(f"{OURS}.kind.weight", f"{THEIRS}.token_type_embeddings.weight"),
            *linear(f"{OURS}.norm", f"{THEIRS}.LayerNorm"),
            take_rows(*places, rows=rows, spare=before),
            *(linear(QUERIES, *pairs) if pairs else []),
        ]

    def adapt(self, numbers: Numbers, tensors: Tensors) -> tuple[Numbers, Tensors]:
        numbers, tensors = super().adapt(numbers, tensors)
        words, own = tensors.get(f"{self.prefix}{WORDS}"), tensors.get(DECODER)
        if words is None or own is None:
            return numbers, tensors
        if not torch.equal(words, own):
            return numbers.but(tied=False), tensors
        return numbers, {name: tensor for name, tensor in tensors.items() if name != DECODER}

    def complete(self, tensors: Tensors, numbers: Numbers, architecture: Architecture) -> Tensors:
        whole = super().complete(tensors, numbers, architecture)
        if "mlm" in architecture.heads:  # `transformers` does not tie it
            whole.setdefault(DECODER, whole[f"{self.prefix}{WORDS}"].clone())
        return whole

    def nodes(self, numbers: Numbers) -> Node:
        nodes = super().nodes(numbers)
        model = nodes["model"]
        model["_target_"] = "plmctl.models.luke.Luke"
        model["read_entities"] = True
        model["entities"] = {
            "_target_": "plmctl.nn.entity_tokens.EntityTokens",
            "count": numbers.entities,
            "entity_width": numbers.entity_width,
            "norm": model["embedding"]["norm"],
            "dropout": numbers.dropout,
        }
        model["stack"]["cells"]["a"] |= {
            "_target_": "plmctl.nn.cells.entity_aware_attention.EntityAwareAttention",
            "aware": numbers.aware,
        }
        return nodes

    def simplify(self, config: Config, tensors: Weights) -> tuple[Config, Weights, list[str]]:
        """Without entities LUKE is the encoder of its words."""
        model = dict(config["model"])
        if model.get("read_entities", True) or "entities" not in model:
            return config, tensors, []
        cells = dict(model["stack"]["cells"])
        attention = {key: value for key, value in cells["a"].items() if key != "aware"}
        cells["a"] = attention | {"_target_": "plmctl.nn.cells.attention.Attention"}
        model |= {
            "_target_": "plmctl.models.encoder.Encoder",
            "stack": {**model["stack"], "cells": cells},
        }
        model = {
            key: node for key, node in model.items() if key not in ("entities", "read_entities")
        }
        heads = {
            name: node for name, node in (config.get("heads") or {}).items() if name != "entities"
        }
        own = (f"{OURS}.", "heads.entities.", ".cell.queries.")
        kept = {name: x for name, x in tensors.items() if not any(part in name for part in own)}
        return {**config, "model": model, "heads": heads}, kept, ["model.entities"]

    def measure(self, config: Config, tensors: Weights, pad: int) -> Numbers:
        plain, table = super().measure(config, tensors, pad), tensors.get(TABLE)
        rows, width = (FIRST, 0) if table is None else table.shape
        aware = f"{QUERIES.format(i=0)}.weight" in tensors
        return plain.but(entities=int(rows) - FIRST, entity_width=int(width), aware=aware)

    def find_unstated(self, config: Config, numbers: Numbers) -> list[str]:
        lines = super().find_unstated(config, numbers)
        if numbers.segments > 1:
            lines.append(f"model.embedding.segments={numbers.segments} (published: 1)")
        return lines

    def head(self, name: str, numbers: Numbers, outputs: int) -> Node:
        if name != "entities":
            return super().head(name, numbers, outputs)
        return {
            "_target_": "plmctl.heads.entity_lm.EntityLMHead",
            "entity_width": numbers.entity_width,
            "count": numbers.entities,
            "activation": numbers.activation,
            "eps": numbers.eps,
        }
