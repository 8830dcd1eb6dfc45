"""LED, the encoder-decoder of Longformer (Beltagy et al., 2020, arXiv:2004.05150, sec. 7), as
`transformers` publishes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NotRequired

from torch import Tensor

from plmctl.core.values import Count
from plmctl.interop.bart import SEQ2SEQ, BartConfig, BartFamily, layer_rules
from plmctl.interop.family import Architecture, Node, Numbers
from plmctl.interop.longformer import (
    CELL,
    WINDOW,
    attention_rules,
    list_unexpressed_globals,
    read_pattern,
    read_windows,
    window_pattern,
)
from plmctl.interop.names import NameRule, linear, same
from plmctl.interop.stacks import HEAD, TABLES, StackNumbers

POSITIONS = "backbone.{end}.position.table.weight"


class LEDConfig(BartConfig):
    """The settings of `config.json` that are read."""

    max_position_embeddings: NotRequired[Count]  # type: ignore[misc]  # each end has its own
    max_encoder_position_embeddings: NotRequired[Count]
    max_decoder_position_embeddings: NotRequired[Count]
    attention_window: NotRequired[list[Count] | Count]


@dataclass(frozen=True, kw_only=True)
class LEDNumbers(StackNumbers):
    """What members of this family have beside."""

    reaches: tuple[int, ...]  # of the encoder: tokens to either side, by layer
    # global tokens at the beginning of a source that names none; a `config.json` does not say it
    tokens: int | None = 0
    target_length: int  # positions of the decoder


def _rules() -> list[NameRule]:
    ours, theirs = "backbone.encoder.stack.blocks", "encoder.layers.{i}"
    own = f"{theirs}.self_attn.longformer_self_attn"
    positions = [
        same(POSITIONS.format(end=end), f"{end}.embed_positions.weight")
        for end in ("encoder", "decoder")
    ]
    norms = [
        rule
        for end in ("encoder", "decoder")
        for rule in linear(f"backbone.{end}.embedding.norm", f"{end}.layernorm_embedding")
    ]
    return [
        *TABLES,
        *positions,
        *norms,
        *attention_rules(f"{ours}.a.{{i}}.cell", own, names=("query", "key", "value")),
        *linear(f"{ours}.a.{{i}}.cell.out", f"{theirs}.self_attn.output"),
        *linear(f"{ours}.a.{{i}}.norm_sum", f"{theirs}.self_attn_layer_norm"),
        *linear(f"{ours}.f.{{i}}.cell.up", f"{theirs}.fc1"),
        *linear(f"{ours}.f.{{i}}.cell.down", f"{theirs}.fc2"),
        *linear(f"{ours}.f.{{i}}.norm_sum", f"{theirs}.final_layer_norm"),
        *layer_rules("decoder"),
    ]


class LEDFamily(BartFamily):
    """BART whose encoder has a window in each layer, and global tokens that have maps of their
    own; the decoder sees all of the source.
    """

    model_type = "led"
    systems = ("LED",)
    schema = LEDConfig
    prefix = "led."
    rules = _rules()
    architectures = (
        Architecture(
            "LEDForQuestionAnswering", ("span",), linear("heads.span.linear", "qa_outputs")
        ),
        Architecture("LEDForConditionalGeneration", (HEAD,), SEQ2SEQ),
        Architecture("LEDModel", bare=True),
    )

    def numbers(self, settings: Mapping[str, Any]) -> LEDNumbers:
        source = settings.get("max_encoder_position_embeddings", 16384)
        numbers = super().numbers({**settings, "max_position_embeddings": source})
        window = settings.get("attention_window", WINDOW)
        return LEDNumbers(
            **vars(numbers),
            reaches=read_windows(window, numbers.num_layers),
            target_length=settings.get("max_decoder_position_embeddings", 1024),
        )

    def settings(self, numbers: Numbers) -> Node:
        assert isinstance(numbers, LEDNumbers)
        settings = super().settings(numbers)
        del settings["max_position_embeddings"], settings["scale_embedding"]
        return settings | {
            "max_encoder_position_embeddings": numbers.max_length,
            "max_decoder_position_embeddings": numbers.target_length,
            "attention_window": [2 * reach for reach in numbers.reaches],
        }

    def nodes(self, numbers: Numbers) -> Node:
        assert isinstance(numbers, LEDNumbers)
        nodes = super().nodes(replace(numbers, scaled=False))
        nodes["pattern"] = window_pattern(numbers.reaches, numbers.tokens)
        below, above = nodes["model"]["encoder"], nodes["model"]["decoder"]
        cells = below["stack"]["cells"]
        below["stack"]["cells"] = {**cells, "a": {**cells["a"], "_target_": CELL}}
        above["position"] = {**above["position"], "max_length": numbers.target_length}
        return nodes

    def measure(
        self, config: Mapping[str, Any], tensors: Mapping[str, Tensor], pad: int
    ) -> LEDNumbers:
        plain = super().measure(config, tensors, pad)
        reaches, tokens = read_pattern(config["pattern"], plain.num_layers) or ((), 0)
        table = tensors.get(POSITIONS.format(end="decoder"))
        length = plain.max_length if table is None else len(table)
        return LEDNumbers(**vars(plain), reaches=reaches, tokens=tokens, target_length=length)

    def find_differences(self, config: Mapping[str, Any], numbers: Numbers) -> list[str]:
        assert isinstance(numbers, LEDNumbers)
        if numbers.reaches:  # in another order, or one number for all layers
            config = {**config, "pattern": self.nodes(numbers)["pattern"]}
        return super().find_differences(config, numbers)

    def find_unstated(self, config: Mapping[str, Any], numbers: Numbers) -> list[str]:
        assert isinstance(numbers, LEDNumbers)
        narrow = ["pattern.parts.0.reach=0 (published: 1 or more)"] * (0 in numbers.reaches)
        return super().find_unstated(config, numbers) + narrow

    def list_unexpressed(self, config: Mapping[str, Any]) -> list[str]:
        return list_unexpressed_globals(config)
