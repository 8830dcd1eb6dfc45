"""The Transformer (Vaswani et al., 2017, arXiv:1706.03762) as Marian trains it and
`transformers` publishes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plmctl.core.errors import ConfigError
from plmctl.interop.bart import (
    SEQ2SEQ,
    BartConfig,
    export_settings,
    layer_rules,
    post_norm_stacks,
    read_stack_numbers,
)
from plmctl.interop.bert import ACTIVATIONS
from plmctl.interop.family import Architecture, Node, Numbers
from plmctl.interop.names import Tensors
from plmctl.interop.stacks import HEAD, TABLES, EncoderDecoderFamily, StackNumbers


class MarianFamily(EncoderDecoderFamily):
    """BART's layers with sinusoidal positions and without a norm on the embeddings, `Marian...`."""

    model_type = "marian"
    systems = ("Marian",)
    schema = BartConfig
    prefix = "model."
    rules = (*TABLES, *(rule for end in ("encoder", "decoder") for rule in layer_rules(end)))
    architectures = (
        Architecture("MarianMTModel", (HEAD,), SEQ2SEQ),
        Architecture("MarianModel", bare=True),
    )
    activations: Mapping[str, str] = {**ACTIVATIONS, "swish": "silu"}

    def numbers(self, settings: Mapping[str, Any]) -> StackNumbers:
        for key in ("share_encoder_decoder_embeddings", "tie_word_embeddings"):
            if not settings.get(key, True):
                raise ConfigError(f"config.json: {key}", False, "true (nothing else is supported)")
        return read_stack_numbers(self, settings, start=settings.get("pad_token_id") or 0)

    def settings(self, numbers: Numbers) -> Node:
        assert isinstance(numbers, StackNumbers)
        own = {"share_encoder_decoder_embeddings": True, "decoder_vocab_size": numbers.vocab_size}
        # sinusoids have no longest row
        return export_settings(self, numbers) | own | {"max_position_embeddings": 1024}

    def nodes(self, numbers: Numbers) -> Node:
        positions = {
            "_target_": "plmctl.nn.positions.Sinusoidal",
            "layout": "halves",
            "frequencies": "paper",
        }
        return post_norm_stacks(numbers, positions=positions, embedding={"norm": None})

    def find_differences(self, config: Mapping[str, Any], numbers: Numbers) -> list[str]:
        assert isinstance(numbers, StackNumbers)
        tables = {"model.tied": numbers.shared, f"heads.{HEAD}.tied": numbers.tied}
        return super().find_differences(config, numbers) + [
            f"{path}=False (published: True)" for path, one in tables.items() if not one
        ]

    def adapt(self, numbers: Numbers, tensors: Tensors) -> tuple[Numbers, Tensors]:
        """Remove the sinusoids that old files contain."""
        learned = {
            name: tensor
            for name, tensor in tensors.items()
            if not name.endswith("embed_positions.weight")
        }
        return super().adapt(numbers, learned)
