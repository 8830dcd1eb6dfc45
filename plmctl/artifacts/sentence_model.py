"""Models of sentences: the settings by which one was trained to make vectors of texts, and its
folder for the library `sentence-transformers`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from plmctl.artifacts.loading import Source
from plmctl.config.build import class_of
from plmctl.core.errors import ConfigError
from plmctl.heads.base import POOLER
from plmctl.heads.sentences import LM, SENTENCE, TEXT_POOLINGS
from plmctl.interop import sentence_folder
from plmctl.interop.sentence_folder import LAYERS, SentenceSettings

Layer = tuple[Mapping[str, Any], Mapping[str, Tensor]]  # the node of a layer, and its tensors
Write = Callable[[Source, Path], object]


def find_settings(source: Source) -> SentenceSettings | None:
    """The settings by which a model makes vectors of texts; None where it was not trained to."""
    if (stated := SentenceSettings.of(source.config)) is not None:
        return stated
    nodes = [source.own_task(), *(source.config.get("objective") or {}).values()]
    for node in nodes:
        if isinstance(node, Mapping) and "_target_" in node:
            part: Any = class_of(node, source.plugins)
            if getattr(part, "embeds", False):
                return SentenceSettings(
                    pooling=str(node.get("pooling", "first")),
                    similarity=str(node.get("likeness", "cosine")),
                    max_length=node.get("max_length"),
                )
    return None


def to_sentence_folder(source: Source, folder: Path, write_network: Write) -> str:
    """Write a model of sentences as `sentence-transformers` reads it; returns what was written.

    Args:
        folder: The folder to fill.
        write_network: Writes the network and its tokenizer in Hugging Face's layout.

    Raises:
        ConfigError: It was not trained on whole texts, or has a part that the layout lacks.
    """
    settings = find_settings(source)
    if settings is None:
        allowed = "a model that was trained on whole texts: task=bi_encoder, objective=[simcse]"
        raise ConfigError("task", (source.own_task() or {}).get("name"), allowed, fix="--to hf")
    if (how := TEXT_POOLINGS.get(settings.pooling)) is not None and how.terms:
        write_network(_take_network(source, LM), folder)
        sentence_folder.write_sparse(folder, settings, vocab_size=source.vocab_size)
        return f"sentence-transformers, {sentence_folder.SPARSE}"
    width = int(source.config["size"]["width"])
    layers: list[Layer] = []
    if settings.pooling == POOLER:
        settings = replace(settings, pooling="first")
        layers.append(_take_pooler(source.tensors, POOLER, width))
    if unknown := {*settings.pooling.split("+")} - {*sentence_folder.POOLINGS.values()}:
        known = ", ".join(sentence_folder.POOLINGS.values())
        raise ConfigError("pooling", min(unknown), f"one of {known}, or pooler", fix="--to plmctl")
    layers += _take_layers(source, width)
    write_network(_take_network(source), folder)
    sentence_folder.write(folder, settings, layers, width=width)
    return f"sentence-transformers, pooling {settings.pooling}"


def _take_network(source: Source, *kept: str) -> Source:
    """The model with the heads `kept` alone."""
    own = tuple(f"heads.{name}." for name in kept)
    tensors = {
        name: tensor
        for name, tensor in source.tensors.items()
        if not name.startswith("heads.") or name.startswith(own)
    }
    heads = {name: source.config["heads"][name] for name in kept}
    return replace(
        source, config={**source.config, "heads": heads, "labels": None}, tensors=tensors
    )


def _take_pooler(tensors: Mapping[str, Tensor], head: str, width: int) -> Layer:
    own = _below(tensors, f"heads.{head}.dense.", "linear.")
    return {
        "_target_": f"{LAYERS}SentenceDense",
        "inputs": width,
        "columns": width,
        "activation": "tanh",
    }, own


def _take_layers(source: Source, width: int) -> list[Layer]:
    """The layers of the head that vectors pass; ConfigError for another kind of head."""
    node = (source.config.get("heads") or {}).get(SENTENCE)
    kind = "" if node is None else str(node["_target_"]).rpartition(".")[2]
    if kind not in HEADS:
        known = ", ".join(filter(None, HEADS))
        allowed = f"one of {known}: sentence-transformers has no other"
        raise ConfigError(f"heads.{SENTENCE}", kind, allowed, fix="--to plmctl")
    return HEADS[kind](source.tensors, node or {}, width)


def _take_linear(tensors: Mapping[str, Tensor], node: Mapping[str, Any], width: int) -> list[Layer]:
    if (columns := node.get("columns")) is None:
        return []
    layer = {
        "_target_": f"{LAYERS}SentenceDense",
        "inputs": width,
        "columns": columns,
        "activation": None,
    }
    return [(layer, _below(tensors, f"heads.{SENTENCE}.linear.", "linear."))]


def _take_several(
    tensors: Mapping[str, Tensor], node: Mapping[str, Any], width: int
) -> list[Layer]:
    return [
        (layer, _below(tensors, f"heads.{SENTENCE}.layers.{number}.", ""))
        for number, layer in enumerate(node["layers"])
    ]


HEADS: Mapping[str, Callable[[Mapping[str, Tensor], Mapping[str, Any], int], list[Layer]]] = {
    "": lambda tensors, node, width: [],
    "Vector": _take_linear,
    "Pooler": lambda tensors, node, width: [_take_pooler(tensors, SENTENCE, width)],
    "SentenceLayers": _take_several,
}


def _below(tensors: Mapping[str, Tensor], prefix: str, new: str) -> dict[str, Tensor]:
    """The tensors below a prefix, with another one."""
    return {
        new + name.removeprefix(prefix): tensor
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }
