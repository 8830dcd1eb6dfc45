"""Ettin's decoders (Weller et al., 2025, arXiv:2507.11412), ModernBERT's block from left to right,
as `transformers` publishes it.
"""

from __future__ import annotations

from collections.abc import Sequence

from plmctl.core.errors import ConfigError
from plmctl.interop.family import Architecture, Node, lm_head
from plmctl.interop.modernbert import OURS, PATTERN, ModernBertFamily, free_bias
from plmctl.interop.names import NameRule, Weights, fuse, same
from plmctl.interop.settings import Config, Numbers

AND = "plmctl.attention.patterns.base.And"
CAUSAL = {"_target_": "plmctl.attention.patterns.causal.Causal"}
CLM = [
    *free_bias("heads.clm.dense", "lm_head.dense"),
    *free_bias("heads.clm.norm", "lm_head.norm"),
    same("heads.clm.weight", "decoder.weight", optional=True),
    same("heads.clm.bias", "decoder.bias", optional=True),
]
MAPS = [f"layers.{{i}}.attn.{name}_proj" for name in "qkv"]


class ModernBertDecoderFamily(ModernBertFamily):
    """ModernBERT's block in which no token sees a later one; a window of `local_attention` holds
    half as many tokens, the token itself among them.
    """

    model_type = "modernbert-decoder"
    ignored = ModernBertFamily.ignored | {"sliding_window"}
    systems = ("Ettin's decoders",)
    hub: tuple[tuple[str, int], ...] = (
        ("jhu-clsp/ettin-decoder-17m", 17),
        ("jhu-clsp/ettin-decoder-150m", 150),
    )
    architectures: Sequence[Architecture] = (
        Architecture("ModernBertDecoderForCausalLM", ("clm",), CLM),
        Architecture("ModernBertDecoderModel", bare=True),
    )

    def numbers(self, settings: Config) -> Numbers:
        if settings.get("local_attention", 128) < 4:
            allowed = "4 or more: a token sees another one"
            raise ConfigError("config.json: local_attention", settings["local_attention"], allowed)
        return self.narrow(super().numbers(settings), -1)

    def settings(self, numbers: Numbers) -> Node:
        return super().settings(self.narrow(numbers, 1))

    def narrow(self, numbers: Numbers, by: int) -> Numbers:
        """The numbers with windows that reach further by so many tokens."""
        wider = [None if reach is None else reach + by for reach in numbers.reaches]
        return numbers.but(reaches=wider)

    def backbone(self, numbers: Numbers) -> Sequence[NameRule]:
        kept = [rule for rule in self.rules if not rule.ours.endswith(("qkv.weight", "qkv.bias"))]
        parts = ("weight", "bias") if numbers.attention_bias else ("weight",)
        ours = f"{OURS}.a.{{i}}.cell.qkv"
        return [*kept, *(fuse(f"{ours}.{p}", *(f"{name}.{p}" for name in MAPS)) for p in parts)]

    def nodes(self, numbers: Numbers) -> Node:
        nodes = super().nodes(numbers)
        nodes["pattern"] = {"_target_": AND, "parts": [CAUSAL, nodes["pattern"]]}
        nodes["model"]["classifier"] = {"pooler": False, "dense": False, "bias": False}
        return nodes

    def head(self, name: str, numbers: Numbers, outputs: int) -> Node:
        inner = {"dense_bias": numbers.head_bias, "norm_bias": numbers.norm_bias}
        own = {"transform": True, "bias": numbers.decoder_bias, "eps": numbers.eps}
        activation = numbers.head_activation
        return lm_head(numbers, activation=activation, about="next", **own, **inner)

    def measure(self, config: Config, tensors: Weights, pad: int) -> Numbers:
        parts = config["pattern"].get("parts") or [config["pattern"]]
        window: Node = next((part for part in parts if part.get("_target_") == PATTERN), {})
        numbers = super().measure({**config, "pattern": window}, tensors, pad)
        head = (config.get("heads") or {}).get("clm") or {}
        return numbers.but(decoder_bias=head.get("bias", True))

    def find_differences(self, config: Config, numbers: Numbers) -> list[str]:
        node = config["pattern"]
        parts = node.get("parts") or [node]
        kinds = [part.get("_target_") for part in parts]
        causal = kinds in ([CAUSAL["_target_"]], [CAUSAL["_target_"], PATTERN])
        if causal and node.get("_target_") in (AND, CAUSAL["_target_"]):
            config = {**config, "pattern": self.nodes(numbers)["pattern"]}
        return super().find_differences(config, numbers)
