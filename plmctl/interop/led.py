"""LED, the encoder-decoder of Longformer (Beltagy et al., 2020, arXiv:2004.05150, sec. 7), as
`transformers` publishes it.
"""

from __future__ import annotations

from plmctl.core.values import Count
from plmctl.interop.bart import INNER, SEQ2SEQ, BartFamily, layer_rules
from plmctl.interop.family import Architecture, Node, linear_class
from plmctl.interop.longformer import (
    CELL,
    WINDOWS,
    WindowedFamily,
    attention_rules,
    read_pattern,
    read_windows,
    window_pattern,
)
from plmctl.interop.names import NameRule, Weights, linear, maps, same
from plmctl.interop.settings import Config, Key, Numbers
from plmctl.interop.stacks import HEAD, TABLES

UNKNOWN = ("max_position_embeddings", "scale_embedding")  # settings of BART's
POSITIONS = "backbone.{end}.position.table.weight"


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
        *maps(f"{ours}.f.{{i}}", theirs, INNER),
        *layer_rules("decoder"),
    ]


class LEDFamily(WindowedFamily, BartFamily):
    """BART whose encoder has a window in each layer, and global tokens that have maps of their
    own; the decoder sees all of the source.
    """

    model_type = "led"
    systems = ("LED",)
    hub: tuple[tuple[str, int], ...] = (
        ("allenai/led-base-16384", 162),
        ("allenai/led-large-16384", 460),
    )
    stated = (
        *(each for each in BartFamily.stated if each.key not in UNKNOWN),
        Key("max_encoder_position_embeddings", "max_length", Count, 16384),
        Key("max_decoder_position_embeddings", "target_length", Count, 1024),
        WINDOWS,  # windows of the encoder
        Key("scale_embedding", "scaled", bool, False, written=False),
    )
    prefix = "led."
    rules = _rules()
    architectures = (
        linear_class("LEDForQuestionAnswering", "span", "qa_outputs"),
        Architecture("LEDForConditionalGeneration", (HEAD,), SEQ2SEQ),
        Architecture("LEDModel", bare=True),
    )

    def numbers(self, settings: Config) -> Numbers:
        numbers = super().numbers(settings)
        reaches = read_windows(numbers.reaches, numbers.num_layers)
        # no setting says how many global tokens begin a source that names none
        return numbers.but(reaches=reaches, tokens=0)

    def nodes(self, numbers: Numbers) -> Node:
        nodes = super().nodes(numbers.but(scaled=False))
        nodes["pattern"] = window_pattern(numbers.reaches, numbers.tokens)
        below, above = nodes["model"]["encoder"], nodes["model"]["decoder"]
        cells = below["stack"]["cells"]
        below["stack"]["cells"] = {**cells, "a": {**cells["a"], "_target_": CELL}}
        above["position"] = {**above["position"], "max_length": numbers.target_length}
        return nodes

    def measure(self, config: Config, tensors: Weights, pad: int) -> Numbers:
        plain = super().measure(config, tensors, pad)
        reaches, tokens = read_pattern(config["pattern"], plain.num_layers) or ((), 0)
        table = tensors.get(POSITIONS.format(end="decoder"))
        length = plain.max_length if table is None else len(table)
        return plain.but(reaches=reaches, tokens=tokens, target_length=length)
