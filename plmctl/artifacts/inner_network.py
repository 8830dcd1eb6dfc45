"""A network inside of a model as a model of its own: the encoder of an encoder-decoder."""

from __future__ import annotations

from dataclasses import replace

from plmctl.artifacts.loading import Source
from plmctl.artifacts.model_facts import networks
from plmctl.core.errors import ConfigError

KEPT = ("size", "pattern", "position", "tokenizer")  # the parts of a config that both have


def take_network(source: Source, name: str) -> Source:
    """Weights and config of `model.<name>`, without heads, so that fine-tuning and `plmctl embed`
    take it as any model (McCann et al., 2017, arXiv:1708.00107: the encoder of a translator).

    Raises:
        ConfigError: The model has no such network, or one that reads the states of another.
    """
    model = source.config["model"]
    if name not in networks(model):
        kind = str(model["_target_"]).rpartition(".")[2]
        allowed = f"a network inside of the model: this one is {kind}, a single network"
        raise ConfigError("--part", name, allowed, fix="--part model")
    if model.get("front"):
        allowed = "a network that reads tokens: here it reads the states of model.front"
        raise ConfigError("--part", name, allowed, fix="--part model")
    prefix = f"backbone.{name}."
    config = {key: source.config[key] for key in KEPT if key in source.config}
    config["model"] = {**model[name], "initializer": model.get("initializer")}
    tensors = {
        f"backbone.{key.removeprefix(prefix)}": tensor
        for key, tensor in source.tensors.items()
        if key.startswith(prefix)
    }
    return replace(source, config=config, tensors=tensors)
