"""The Transformer (Vaswani et al., 2017, arXiv:1706.03762) as Marian trains it and
`transformers` publishes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plmctl.core.errors import ConfigError
from plmctl.interop.bart import SEQ2SEQ, SETTINGS, layer_rules, post_norm_stacks
from plmctl.interop.bert import ACTIVATIONS
from plmctl.interop.family import Architecture, Node
from plmctl.interop.names import Tensors
from plmctl.interop.settings import Also, Numbers, Written, activation, change
from plmctl.interop.stacks import HEAD, TABLES, EncoderDecoderFamily


class MarianFamily(EncoderDecoderFamily):
    """BART's layers with sinusoidal positions and without a norm on the embeddings, `Marian...`."""

    model_type = "marian"
    systems = ("Marian",)
    stated = change(
        SETTINGS,
        activation("activation_function", {**ACTIVATIONS, "swish": "silu"}, "gelu"),
        Written("share_encoder_decoder_embeddings", True),
        Also("decoder_vocab_size", "vocab_size"),
    )
    prefix = "model."
    rules = (*TABLES, *(rule for end in ("encoder", "decoder") for rule in layer_rules(end)))
    architectures = (
        Architecture("MarianMTModel", (HEAD,), SEQ2SEQ),
        Architecture("MarianModel", bare=True),
    )

    def numbers(self, settings: Mapping[str, Any]) -> Numbers:
        for key in ("share_encoder_decoder_embeddings", "tie_word_embeddings"):
            if not settings.get(key, True):
                raise ConfigError(f"config.json: {key}", False, "true (nothing else is supported)")
        return super().numbers(settings)

    def settings(self, numbers: Numbers) -> Node:
        return super().settings(numbers.but(max_length=1024))  # sinusoids have no longest row

    def nodes(self, numbers: Numbers) -> Node:
        positions = {
            "_target_": "plmctl.nn.positions.Sinusoidal",
            "layout": "halves",
            "frequencies": "paper",
        }
        return post_norm_stacks(numbers, positions=positions, embedding={"norm": None})

    def find_differences(self, config: Mapping[str, Any], numbers: Numbers) -> list[str]:
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
