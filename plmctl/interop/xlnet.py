"""XLNet (Yang et al., 2019, arXiv:1906.08237) as `transformers` publishes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NotRequired

import torch
from torch import Tensor

from plmctl.core.errors import ConfigError
from plmctl.core.values import Count, Number, Rate, Whole
from plmctl.interop.bert import ACTIVATIONS, encoder_nodes, task_head
from plmctl.interop.family import Architecture, Family, Node, Numbers, PublishedConfig
from plmctl.interop.names import NameRule, linear, same

CELL, THEIRS = "backbone.stack.blocks.a.{i}.cell", "layer.{i}.rel_attn"
FIXED = {  # settings with one supported value
    "attn_type": "bi",
    "same_length": False,
    "bi_data": False,
    "summary_type": "last",
    "summary_use_proj": True,
    "summary_activation": "tanh",
}
SUMMARY = linear("heads.pooler.dense", "sequence_summary.summary")


def projection_rules(num_heads: int) -> list[NameRule]:
    """The rules for the maps: theirs are [W, H, D], ours are matrices; keys and values are one."""

    def join(tensors: Sequence[Tensor]) -> Tensor:
        return torch.cat([tensor.flatten(1).T for tensor in tensors])

    def split(ours: Tensor, parts: int = 1) -> list[Tensor]:
        return [part.T.unflatten(1, (num_heads, -1)) for part in ours.chunk(parts)]

    def reshape(ours: str, theirs: str, axis: int, *, optional: bool = False) -> NameRule:
        """Our tensor has one more axis of size 1."""
        return NameRule(
            ours,
            (theirs,),
            lambda tensors: tensors[0].unsqueeze(axis),
            lambda tensor: [tensor.squeeze(axis)],
            optional,
        )

    return [
        *(
            NameRule(f"{CELL}.{ours}.weight", (f"{THEIRS}.{name}",), join, split)
            for ours, name in (("q", "q"), ("place", "r"))
        ),
        NameRule(
            f"{CELL}.kv.weight", (f"{THEIRS}.k", f"{THEIRS}.v"), join, lambda ours: split(ours, 2)
        ),
        NameRule(
            f"{CELL}.out.weight",
            (f"{THEIRS}.o",),
            lambda tensors: tensors[0].flatten(1),
            lambda ours: [ours.unflatten(1, (num_heads, -1))],
        ),
        reshape(f"{CELL}.content_bias", f"{THEIRS}.r_w_bias", 1),
        reshape(f"{CELL}.place_bias", f"{THEIRS}.r_r_bias", 1),
        reshape(f"{CELL}.segment_bias", f"{THEIRS}.r_s_bias", 1),
        reshape(f"{CELL}.segments", f"{THEIRS}.seg_embed", 2),
    ]


class XLNetConfig(PublishedConfig):
    """The settings of `config.json` that are read."""

    n_layer: Count
    d_model: Count
    n_head: Count
    d_inner: Count
    dropout: NotRequired[Rate]
    ff_activation: NotRequired[str]
    layer_norm_eps: NotRequired[Number]
    mem_len: NotRequired[Whole | None]
    reuse_len: NotRequired[Whole | None]
    clamp_len: NotRequired[int]


class XLNetFamily(Family):
    """Two streams over relative attention, `XLNet...`; the last token, `<cls>`, represents a
    row.
    """

    model_type = "xlnet"
    systems = ("XLNet",)
    schema = XLNetConfig
    prefix = "transformer."
    rules: Sequence[NameRule] = (
        same("backbone.embedding.token.weight", "word_embedding.weight"),
        NameRule(
            "backbone.query",
            ("mask_emb",),
            lambda found: found[0][0],
            lambda tensor: [tensor[None]],
        ),
        *linear("backbone.stack.blocks.a.{i}.norm_sum", f"{THEIRS}.layer_norm"),
        *linear("backbone.stack.blocks.f.{i}.cell.up", "layer.{i}.ff.layer_1"),
        *linear("backbone.stack.blocks.f.{i}.cell.down", "layer.{i}.ff.layer_2"),
        *linear("backbone.stack.blocks.f.{i}.norm_sum", "layer.{i}.ff.layer_norm"),
    )
    architectures: Sequence[Architecture] = (
        Architecture(
            "XLNetForSequenceClassification",
            ("pooler", "score"),
            SUMMARY + linear("heads.score.linear", "logits_proj"),
            outputs=1,
        ),
        Architecture(
            "XLNetForSequenceClassification",
            ("pooler", "class"),
            SUMMARY + linear("heads.class.linear", "logits_proj"),
        ),
        Architecture(
            "XLNetForMultipleChoice",
            ("pooler", "choice"),
            SUMMARY + linear("heads.choice.linear", "logits_proj"),
            outputs=1,
        ),
        Architecture(
            "XLNetForTokenClassification", ("tag",), linear("heads.tag.linear", "classifier")
        ),
        Architecture(
            "XLNetForQuestionAnsweringSimple", ("span",), linear("heads.span.linear", "qa_outputs")
        ),
        Architecture(
            "XLNetLMHeadModel",
            ("plm",),
            [
                same("heads.plm.bias", "lm_loss.bias"),
                same("heads.plm.weight", "lm_loss.weight", optional=True),
            ],
        ),
        Architecture("XLNetModel", bare=True),
    )
    ties = {"lm_loss.weight": "word_embedding.weight"}  # noqa: RUF012
    activations = ACTIVATIONS

    def backbone(self, numbers: Numbers) -> Sequence[NameRule]:
        return [*self.rules, *projection_rules(numbers.num_heads)]

    def numbers(self, settings: Mapping[str, Any]) -> Numbers:
        for key, allowed in FIXED.items():
            if settings.get(key, allowed) != allowed:
                raise ConfigError(
                    f"config.json: {key}", settings[key], f"{allowed} (nothing else is supported)"
                )
        if settings.get("clamp_len", -1) > 0:
            raise ConfigError(
                "config.json: clamp_len",
                settings["clamp_len"],
                "-1: every distance counts as it is",
            )
        dropout = settings.get("dropout", 0.1)
        return Numbers(
            num_layers=settings["n_layer"],
            width=settings["d_model"],
            num_heads=settings["n_head"],
            inner_width=settings["d_inner"],
            vocab_size=settings["vocab_size"],
            max_length=0,
            segments=0,
            dropout=dropout,
            attention_dropout=dropout,
            activation=self.activation(settings.get("ff_activation", "gelu"), "ff_activation"),
            eps=settings.get("layer_norm_eps", 1e-12),
            tied=settings.get("tie_word_embeddings", True),
            pad=settings.get("pad_token_id") or 0,
            memory=settings.get("mem_len") or 0,
            reuse=settings.get("reuse_len") or None,
        )

    def settings(self, numbers: Numbers) -> Node:
        return {
            "model_type": self.model_type,
            "vocab_size": numbers.vocab_size,
            "d_model": numbers.width,
            "n_layer": numbers.num_layers,
            "n_head": numbers.num_heads,
            "d_inner": numbers.inner_width,
            "ff_activation": self.activation_name(numbers.activation),
            "dropout": numbers.dropout,
            "layer_norm_eps": numbers.eps,
            "mem_len": numbers.memory or None,
            "reuse_len": numbers.reuse,
            "clamp_len": -1,
            "untie_r": True,
            "initializer_range": 0.02,
            "pad_token_id": numbers.pad,
            "tie_word_embeddings": numbers.tied,
            "summary_last_dropout": numbers.dropout,
            **FIXED,
        }

    def nodes(self, numbers: Numbers) -> Node:
        nodes = encoder_nodes(numbers) | {
            "position": {"_target_": "plmctl.nn.positions.NoPosition"}
        }
        model = nodes["model"]
        model |= {"_target_": "plmctl.models.xlnet.XLNet", "two_streams": True}
        model |= {"memory": numbers.memory, "reuse": numbers.reuse}
        model["embedding"] |= {"segments": 0, "norm": None}
        model["stack"]["cells"]["a"] |= {
            "_target_": "plmctl.nn.cells.relative_attention.RelativeAttention",
            "segments": True,
        }
        model["initializer"]["_target_"] = "plmctl.nn.init.normal"
        return nodes

    def head(self, name: str, numbers: Numbers, outputs: int) -> Node:
        if name != "plm":
            return task_head(name, numbers, outputs)
        return {
            "_target_": "plmctl.heads.lm.LMHead",
            "tied": numbers.tied,
            "transform": False,
            "bias": True,
            "about": "next",
        }

    def measure(
        self, config: Mapping[str, Any], tensors: Mapping[str, Tensor], pad: int
    ) -> Numbers:
        numbers, model = super().measure(config, tensors, pad), config.get("model") or {}
        return replace(
            numbers, max_length=0, memory=model.get("memory") or 0, reuse=model.get("reuse")
        )
