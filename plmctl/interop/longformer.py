"""Longformer (Beltagy et al., 2020, arXiv:2004.05150) as `transformers` publishes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from plmctl.core.errors import ConfigError
from plmctl.core.values import Count
from plmctl.interop.bert import LAYER, PLACES, encoder_rules
from plmctl.interop.family import Family, Node
from plmctl.interop.names import NameRule, Weights, linear, skip_rows
from plmctl.interop.roberta import RobertaFamily, roberta_classes
from plmctl.interop.settings import Config, Key, Numbers, Written, change

PATTERNS = "plmctl.attention.patterns"
CELL = "plmctl.nn.cells.global_attention.GlobalAttention"
POOLER = linear("heads.pooler.dense", "longformer.pooler.dense")
# the tokens to either side in each layer, instead of windows of two sides
WINDOWS = Key(
    "attention_window",
    "reaches",
    list[Count] | Count,
    512,
    write=lambda reaches: [2 * reach for reach in reaches],
)


class WindowedFamily(Family):
    """A family with a window in each layer, which a pattern may write in several forms."""

    def find_differences(self, config: Config, numbers: Numbers) -> list[str]:
        if numbers.reaches:  # in another order, or one number for all layers
            config = {**config, "pattern": self.nodes(numbers)["pattern"]}
        return super().find_differences(config, numbers)

    def find_unstated(self, config: Config, numbers: Numbers) -> list[str]:
        narrow = ["pattern.parts.0.reach=0 (published: 1 or more)"] * (0 in numbers.reaches)
        return super().find_unstated(config, numbers) + narrow

    def list_unexpressed(self, config: Config) -> list[str]:
        """A note if the pattern has global tokens, which a `config.json` does not state."""
        _, tokens = read_pattern(config["pattern"], 1) or ((), 0)
        if not tokens:
            return []
        which = "the first token" if tokens == 1 else f"the first {tokens} tokens"
        return [f"pattern: {which} of a row is global; give each batch a global_attention_mask"]


class LongformerFamily(WindowedFamily, RobertaFamily):
    """RoBERTa's encoder with a window in each layer, and global tokens that have maps of their own.

    The published classes take the global tokens as an argument; our rows have them as a field.
    """

    model_type = "longformer"
    systems = ("Longformer",)
    recipes: tuple[str, ...] = ("longformer",)
    hub: tuple[tuple[str, int], ...] = (
        ("allenai/longformer-base-4096", 149),
        ("allenai/longformer-large-4096", 435),
    )
    stated = change(RobertaFamily.stated, WINDOWS, Written("sep_token_id", "sep"))
    prefix = "longformer."
    architectures = roberta_classes("Longformer", POOLER)

    def numbers(self, settings: Config) -> Numbers:
        numbers = super().numbers(settings)
        reaches = read_windows(numbers.reaches, numbers.num_layers)
        # no setting says how many global tokens begin a row that names none
        return numbers.but(reaches=reaches, tokens=0, letter="g")

    def backbone(self, numbers: Numbers) -> list[NameRule]:
        own = f"backbone.stack.blocks.{numbers.letter}.{{i}}.cell"
        names = ("query", "key", "value")
        qkv = attention_rules(own, f"{LAYER}.attention.self", names=names)
        positions = skip_rows(*PLACES, rows=numbers.pad + 1)
        return [*encoder_rules(numbers.letter, qkv), positions]

    def nodes(self, numbers: Numbers) -> Node:
        nodes = super().nodes(numbers)
        nodes["pattern"] = window_pattern(numbers.reaches, numbers.tokens)
        stack = nodes["model"]["stack"]
        stack["layout"] = f"{numbers.letter}f*{numbers.num_layers}"
        stack["cells"] = {
            numbers.letter: {**stack["cells"]["a"], "_target_": CELL},
            "f": stack["cells"]["f"],
        }
        return nodes

    def measure(self, config: Config, tensors: Weights, pad: int) -> Numbers:
        stack = (config["model"].get("stack") or {}) if "model" in config else {}
        letter = "a" if stack.get("layout", "").startswith("a") else "g"
        cells = dict(stack.get("cells") or {})
        cells["a"] = cells.get(letter) or {}
        layout = stack.get("layout", "").replace(letter, "a")
        model = {**config["model"], "stack": {**stack, "layout": layout, "cells": cells}}
        plain = super().measure({**config, "model": model}, tensors, pad)
        reaches, tokens = read_pattern(config["pattern"], plain.num_layers) or ((), 0)
        return plain.but(reaches=reaches, tokens=tokens, letter=letter)


def attention_rules(ours: str, theirs: str, *, names: Sequence[str]) -> list[NameRule]:
    """The rules for the maps of all tokens and of global ones; `names` of q, k and v."""
    q, k, v = (f"{theirs}.{name}" for name in names)
    return [
        *linear(f"{ours}.qkv", q, k, v),
        *linear(f"{ours}.global_maps.q", f"{q}_global"),
        *linear(f"{ours}.global_maps.kv", f"{k}_global", f"{v}_global"),
    ]


def read_windows(window: int | Sequence[int], num_layers: int) -> tuple[int, ...]:
    """The tokens to either side in each layer, by a `config.json`, whose windows have two sides."""
    windows = [window] * num_layers if isinstance(window, int) else list(window)
    if len(windows) != num_layers or any(size < 2 or size % 2 for size in windows):
        allowed = f"an even number of at least 2, or one for each of the {num_layers} layers"
        raise ConfigError("config.json: attention_window", window, allowed)
    return tuple(size // 2 for size in windows)


def window_pattern(reaches: Sequence[int], tokens: int | None) -> Node:
    """conf/pattern/longformer.yaml with these numbers."""
    reach = reaches[0] if len(set(reaches)) == 1 else list(reaches)
    return {
        "_target_": f"{PATTERNS}.base.Or",
        "parts": [
            {"_target_": f"{PATTERNS}.window.Window", "reach": reach},
            {"_target_": f"{PATTERNS}.global_tokens.Global", "tokens": tokens},
        ],
    }


def read_pattern(
    node: Mapping[str, Any], num_layers: int
) -> tuple[tuple[int, ...], int | None] | None:
    """(the tokens to either side in each layer, global tokens at the beginning) of a window with
    global tokens; None for another pattern.
    """
    parts = {part.get("_target_"): part for part in node.get("parts") or []}
    window = parts.get(f"{PATTERNS}.window.Window")
    chosen = parts.get(f"{PATTERNS}.global_tokens.Global")
    if node.get("_target_") != f"{PATTERNS}.base.Or" or len(node["parts"]) != 2:
        return None
    if window is None or chosen is None:
        return None
    reach = window["reach"]
    reaches = [reach] * num_layers if isinstance(reach, int) else list(reach)
    return tuple(reaches), chosen["tokens"]
