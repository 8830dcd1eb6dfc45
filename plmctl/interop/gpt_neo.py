"""GPT-Neo (Black et al., 2021, doi:10.5281/zenodo.5297715) as `transformers` publishes it."""

from __future__ import annotations

from itertools import chain

from plmctl.core.errors import ConfigError
from plmctl.core.values import Count, Number, Rate
from plmctl.interop.bert import task_architectures
from plmctl.interop.family import Architecture, Node, row_classes
from plmctl.interop.gpt2 import ACTIVATIONS, CLM, GPT2Family, score_rules
from plmctl.interop.names import Weights, linear, maps, same
from plmctl.interop.settings import (
    TIED,
    VOCAB,
    Also,
    Config,
    Key,
    Numbers,
    Settings,
    Written,
    activation,
    pad,
)

PATTERNS = "plmctl.attention.patterns"
WINDOW, CAUSAL = f"{PATTERNS}.window.Window", f"{PATTERNS}.causal.Causal"
GLOBAL, LOCAL = "global", "local"
SETTINGS: Settings = (
    VOCAB,
    Key("hidden_size", "width", Count),
    Key("num_layers", "num_layers", Count),
    Key("num_heads", "num_heads", Count),
    Key("intermediate_size", "inner_width", Count | None, None),
    Key("max_position_embeddings", "max_length", Count),
    Key("attention_types", "kinds", list, [[[GLOBAL, LOCAL], 12]]),
    Key("window_size", "window", Count, 256),
    activation("activation_function", ACTIVATIONS),
    Key("resid_dropout", "dropout", Rate, 0.0),
    Also("embed_dropout", "dropout"),
    Key("attention_dropout", "attention_dropout", Rate, 0.0),
    Key("layer_norm_epsilon", "eps", Number, 1e-5),
    Written("initializer_range", 0.02),
    TIED,
    pad(written=False),
)


class GPTNeoFamily(GPT2Family):
    """GPT-2 whose layers see all earlier tokens or a window of them, `GPTNeo...`. Scores are plain
    products, and queries, keys and values have no biases.
    """

    model_type = "gpt_neo"
    systems = ("GPT-Neo",)
    hub: tuple[tuple[str, int], ...] = (
        ("EleutherAI/gpt-neo-125m", 125),
        ("EleutherAI/gpt-neo-1.3B", 1300),
    )
    stated = SETTINGS
    ignored = GPT2Family.ignored | {"attention_layers"}
    rules = (
        same("backbone.embedding.token.weight", "wte.weight"),
        same("backbone.position.table.weight", "wpe.weight"),
        *linear(
            "backbone.stack.blocks.a.{i}.cell.qkv",
            *(f"h.{{i}}.attn.attention.{name}_proj" for name in "qkv"),
            bias=False,
        ),
        *linear("backbone.stack.blocks.a.{i}.cell.out", "h.{i}.attn.attention.out_proj"),
        *maps("backbone.stack.blocks.f.{i}.cell", "h.{i}.mlp", {"up": "c_fc", "down": "c_proj"}),
        *linear("backbone.stack.blocks.a.{i}.norm_in", "h.{i}.ln_1"),
        *linear("backbone.stack.blocks.f.{i}.norm_in", "h.{i}.ln_2"),
        *linear("backbone.stack.final_norm", "ln_f"),
    )
    architectures = (
        *row_classes("GPTNeoForSequenceClassification", score_rules),
        *task_architectures("GPTNeo"),
        Architecture("GPTNeoForCausalLM", ("clm",), CLM),
        Architecture("GPTNeoModel", bare=True),
    )

    def numbers(self, settings: Config) -> Numbers:
        numbers = super().numbers(settings)
        try:
            kinds = list(chain.from_iterable(list(own) * times for own, times in numbers.kinds))
        except (TypeError, ValueError):
            kinds = []
        if len(kinds) != numbers.num_layers or not {GLOBAL, LOCAL}.issuperset(kinds):
            allowed = f"the kinds of {numbers.num_layers} layers, as [[[global, local], 12]]"
            raise ConfigError("config.json: attention_types", numbers.kinds, allowed)
        reaches = [None if kind == GLOBAL else numbers.window - 1 for kind in kinds]
        return numbers.but(reaches=reaches)

    def settings(self, numbers: Numbers) -> Node:
        kinds = [GLOBAL if reach is None else LOCAL for reach in numbers.reaches]
        window = next((reach + 1 for reach in numbers.reaches if reach is not None), 256)
        stated = super().settings(numbers.but(kinds=[[kinds, 1]], window=window))
        return stated | {"attention_layers": kinds}

    def nodes(self, numbers: Numbers) -> Node:
        nodes = super().nodes(numbers)
        if any(reach is not None for reach in numbers.reaches):
            parts = [{"_target_": CAUSAL}, {"_target_": WINDOW, "reach": list(numbers.reaches)}]
            nodes["pattern"] = {"_target_": f"{PATTERNS}.base.And", "parts": parts}
        cell = nodes["model"]["stack"]["cells"]["a"]
        nodes["model"]["stack"]["cells"]["a"] = {**cell, "scores": "dot", "qkv_bias": False}
        return nodes

    def measure(self, config: Config, tensors: Weights, pad: int) -> Numbers:
        numbers = super().measure(config, tensors, pad)
        parts = config["pattern"].get("parts") or [{}]
        windows = [part.get("reach") for part in parts if part.get("_target_") == WINDOW]
        reach = windows[0] if len(windows) == 1 else None
        several = list(reach) if isinstance(reach, list | tuple) else [reach] * numbers.num_layers
        return numbers.but(reaches=several)

    def find_unstated(self, config: Config, numbers: Numbers) -> list[str]:
        reaches = {reach for reach in numbers.reaches if reach is not None}
        own = [f"pattern.parts.1.reach={numbers.reaches} (published: one window)"]
        return super().find_unstated(config, numbers) + own * (len(reaches) > 1)
