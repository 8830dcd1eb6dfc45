"""GPT-2 (Radford et al., 2019) as `transformers` publishes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NotRequired

from plmctl.core.errors import ConfigError
from plmctl.core.values import Count, Number, Rate
from plmctl.interop import bert
from plmctl.interop.bert import encoder_nodes, task_head
from plmctl.interop.family import Architecture, Family, Node, Numbers, PublishedConfig
from plmctl.interop.names import NameRule, linear, same, transpose

CELLS: list[NameRule] = [
    *linear("backbone.stack.blocks.a.{i}.cell.qkv", "h.{i}.attn.c_attn", weight=transpose),
    *linear("backbone.stack.blocks.a.{i}.cell.out", "h.{i}.attn.c_proj", weight=transpose),
    *linear("backbone.stack.blocks.f.{i}.cell.up", "h.{i}.mlp.c_fc", weight=transpose),
    *linear("backbone.stack.blocks.f.{i}.cell.down", "h.{i}.mlp.c_proj", weight=transpose),
]
CLM = [same("heads.clm.weight", "lm_head.weight", optional=True)]


def score_rules(head: str) -> list[NameRule]:
    """The rules for a linear map without bias on the last token's state."""
    return [same(f"heads.{head}.linear.weight", "score.weight")]


TIES = {"lm_head.weight": "wte.weight"}
# the first one holds where config.json names none
ACTIVATIONS = {"gelu_new": "gelu_tanh", **bert.ACTIVATIONS}


class GPTConfig(PublishedConfig):
    """The settings of `config.json` that are read."""

    n_layer: Count
    n_embd: Count
    n_head: Count
    n_inner: NotRequired[Count | None]
    n_positions: Count
    resid_pdrop: NotRequired[Rate]
    attn_pdrop: NotRequired[Rate]
    activation_function: NotRequired[str]  # GPT-2
    afn: NotRequired[str]  # GPT
    layer_norm_epsilon: NotRequired[Number]


class GPT2Family(Family):
    """Pre-norm decoder with learned positions and a last norm, `GPT2...`."""

    model_type = "gpt2"
    systems = ("GPT-2",)
    schema = GPTConfig
    prefix = "transformer."
    rules: Sequence[NameRule] = (
        same("backbone.embedding.token.weight", "wte.weight"),
        same("backbone.position.table.weight", "wpe.weight"),
        *CELLS,
        *linear("backbone.stack.blocks.a.{i}.norm_in", "h.{i}.ln_1"),
        *linear("backbone.stack.blocks.f.{i}.norm_in", "h.{i}.ln_2"),
        *linear("backbone.stack.final_norm", "ln_f"),
    )
    architectures: Sequence[Architecture] = (
        Architecture("GPT2ForSequenceClassification", ("score",), score_rules("score"), outputs=1),
        Architecture("GPT2ForSequenceClassification", ("class",), score_rules("class")),
        Architecture(
            "GPT2ForTokenClassification", ("tag",), linear("heads.tag.linear", "classifier")
        ),
        Architecture(
            "GPT2ForQuestionAnswering", ("span",), linear("heads.span.linear", "qa_outputs")
        ),
        Architecture("GPT2LMHeadModel", ("clm",), CLM),
        Architecture("GPT2Model", bare=True),
    )
    ties = TIES
    activations = ACTIVATIONS
    key = "activation_function"

    def numbers(self, settings: Mapping[str, Any]) -> Numbers:
        expected = {
            "scale_attn_weights": True,
            "scale_attn_by_inverse_layer_idx": False,
            "add_cross_attention": False,
        }
        for key, allowed in expected.items():
            if settings.get(key, allowed) != allowed:
                raise ConfigError(
                    f"config.json: {key}", settings[key], f"{allowed} (nothing else is supported)"
                )
        width = settings["n_embd"]
        return Numbers(
            num_layers=settings["n_layer"],
            width=width,
            num_heads=settings["n_head"],
            inner_width=settings.get("n_inner") or 4 * width,
            vocab_size=settings["vocab_size"],
            max_length=settings["n_positions"],
            segments=0,
            dropout=settings.get("resid_pdrop", 0.1),
            attention_dropout=settings.get("attn_pdrop", 0.1),
            activation=self.activation(
                settings.get(self.key, next(iter(self.activations))), self.key
            ),
            eps=settings.get("layer_norm_epsilon", 1e-5),
            tied=settings.get("tie_word_embeddings", True),
            pad=settings.get("pad_token_id") or 0,
        )

    def settings(self, numbers: Numbers) -> Node:
        return {
            "model_type": self.model_type,
            "vocab_size": numbers.vocab_size,
            "n_embd": numbers.width,
            "n_layer": numbers.num_layers,
            "n_head": numbers.num_heads,
            "n_inner": numbers.inner_width,
            "n_positions": numbers.max_length,
            self.key: self.activation_name(numbers.activation),
            "resid_pdrop": numbers.dropout,
            "embd_pdrop": numbers.dropout,
            "attn_pdrop": numbers.attention_dropout,
            "layer_norm_epsilon": numbers.eps,
            "initializer_range": 0.02,
            "tie_word_embeddings": numbers.tied,
        }

    def nodes(self, numbers: Numbers) -> Node:
        nodes = encoder_nodes(numbers) | {
            "pattern": {"_target_": "plmctl.attention.patterns.causal.Causal"}
        }
        model = nodes["model"]
        model["embedding"] |= {"segments": 0, "norm": None}
        model["stack"]["residual"]["_target_"] = "plmctl.nn.residual.PreNorm"
        model["classifier"] = {"pooler": False, "dense": False, "bias": False}
        model["initializer"]["_target_"] = "plmctl.nn.init.scaled_residual"
        return nodes

    def head(self, name: str, numbers: Numbers, outputs: int) -> Node:
        if name != "clm":
            return task_head(name, numbers, outputs) | (
                {"bias": False} if name in ("class", "score") else {}
            )
        return {
            "_target_": "plmctl.heads.lm.LMHead",
            "tied": numbers.tied,
            "transform": False,
            "bias": False,
            "about": "next",
        }
