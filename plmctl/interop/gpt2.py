"""GPT-2 (Radford et al., 2019) as `transformers` publishes it."""

from __future__ import annotations

from collections.abc import Sequence

from plmctl.core.values import Count, Number, Rate
from plmctl.interop import bert
from plmctl.interop.bert import encoder_nodes, task_architectures, task_head
from plmctl.interop.family import Architecture, Family, Node, lm_head, row_classes
from plmctl.interop.names import NameRule, linear, maps, same, transpose
from plmctl.interop.settings import (
    TIED,
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

CELLS: list[NameRule] = [
    *maps(
        "backbone.stack.blocks.a.{i}.cell",
        "h.{i}.attn",
        {"qkv": "c_attn", "out": "c_proj"},
        weight=transpose,
    ),
    *maps(
        "backbone.stack.blocks.f.{i}.cell",
        "h.{i}.mlp",
        {"up": "c_fc", "down": "c_proj"},
        weight=transpose,
    ),
]
CLM = [same("heads.clm.weight", "lm_head.weight", optional=True)]


def score_rules(head: str) -> list[NameRule]:
    """The rules for a linear map without bias on the last token's state."""
    return [same(f"heads.{head}.linear.weight", "score.weight")]


TIES = {"lm_head.weight": "wte.weight"}
# the first one holds where config.json names none
ACTIVATIONS = {"gelu_new": "gelu_tanh", **bert.ACTIVATIONS}


SETTINGS: Settings = (
    VOCAB,
    Key("n_embd", "width", Count),
    Key("n_layer", "num_layers", Count),
    Key("n_head", "num_heads", Count),
    Key("n_inner", "inner_width", Count | None, None),
    Key("n_positions", "max_length", Count),
    activation("activation_function", ACTIVATIONS),
    Key("resid_pdrop", "dropout", Rate, 0.1),
    Also("embd_pdrop", "dropout"),
    Key("attn_pdrop", "attention_dropout", Rate, 0.1),
    Key("layer_norm_epsilon", "eps", Number, 1e-5),
    Written("initializer_range", 0.02),
    TIED,
    pad(written=False),
    Only("scale_attn_weights", True),
    Only("scale_attn_by_inverse_layer_idx", False),
    Only("add_cross_attention", False),
)


class GPT2Family(Family):
    """Pre-norm decoder with learned positions and a last norm, `GPT2...`."""

    model_type = "gpt2"
    systems = ("GPT-2",)
    recipes: tuple[str, ...] = ("gpt2",)
    hub: tuple[tuple[str, int], ...] = (
        ("openai-community/gpt2", 124),
        ("openai-community/gpt2-medium", 355),
        ("openai-community/gpt2-large", 774),
        ("openai-community/gpt2-xl", 1558),
    )
    stated = SETTINGS
    ignored: frozenset[str] = frozenset({"n_ctx"})
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
        *row_classes("GPT2ForSequenceClassification", score_rules),
        *task_architectures("GPT2"),
        Architecture("GPT2LMHeadModel", ("clm",), CLM),
        Architecture("GPT2Model", bare=True),
    )
    ties = TIES

    def numbers(self, settings: Config) -> Numbers:
        numbers = super().numbers(settings)
        return numbers.but(inner_width=numbers.inner_width or 4 * numbers.width)

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
        return lm_head(numbers, bias=False, about="next")
