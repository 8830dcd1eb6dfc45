"""The Transformer (Vaswani et al., 2017, arXiv:1706.03762) as Marian trains it and
`transformers` publishes it.
"""

from __future__ import annotations

from plmctl.core.errors import ConfigError
from plmctl.interop.bart import SEQ2SEQ, SETTINGS, bart_nodes, layer_rules
from plmctl.interop.family import Architecture, Node
from plmctl.interop.settings import Also, Config, Numbers, Written, change
from plmctl.interop.stacks import HEAD, TABLES, EncoderDecoderFamily

SINUSOIDS: Node = {
    "_target_": "plmctl.nn.positions.Sinusoidal",
    "layout": "halves",
    "frequencies": "paper",
}


class MarianFamily(EncoderDecoderFamily):
    """BART's layers with sinusoidal positions and without a norm on the embeddings, `Marian...`."""

    model_type = "marian"
    systems = ("Marian",)
    recipes: tuple[str, ...] = ("transformer",)
    hub: tuple[tuple[str, int], ...] = (("Helsinki-NLP/opus-mt-en-de", 74),)
    stated = change(
        SETTINGS,
        Written("share_encoder_decoder_embeddings", True),
        Also("decoder_vocab_size", "vocab_size"),
    )
    ignored: frozenset[str] = frozenset({"num_hidden_layers", "static_position_embeddings"})
    prefix = "model."
    rules = (*TABLES, *(rule for end in ("encoder", "decoder") for rule in layer_rules(end)))
    architectures = (
        Architecture("MarianMTModel", (HEAD,), SEQ2SEQ),
        Architecture("MarianModel", bare=True),
    )

    def numbers(self, settings: Config) -> Numbers:
        for key in ("share_encoder_decoder_embeddings", "tie_word_embeddings"):
            if not settings.get(key, True):
                raise ConfigError(f"config.json: {key}", False, "true (nothing else is supported)")
        return super().numbers(settings)

    def nodes(self, numbers: Numbers) -> Node:
        return bart_nodes(numbers, positions=SINUSOIDS, embedding={"norm": None})

    def find_differences(self, config: Config, numbers: Numbers) -> list[str]:
        tables = {"model.tied": numbers.shared, f"heads.{HEAD}.tied": numbers.tied}
        return super().find_differences(config, numbers) + [
            f"{path}=False (published: True)" for path, one in tables.items() if not one
        ]
