"""The generator of an ELECTRA run as a separate model, so that it can be exported, too."""

from __future__ import annotations

from plmctl.core.errors import ConfigError
from plmctl.interop.family import Node
from plmctl.interop.names import Tensors, Weights
from plmctl.interop.settings import Config
from plmctl.objectives.generator import SHARED


def extract_generator(config: Config, tensors: Weights, own: Weights) -> tuple[Node, Tensors]:
    """(its config, its tensors), from those of a run; `own`: the tensors of
    objective.safetensors.
    """
    generators = [
        (name, part["generator"])
        for name, part in (config.get("objective") or {}).items()
        if "generator" in part
    ]
    if not generators:
        raise ConfigError(
            "--part", "generator", "a run with a generator: objective=[electra]", fix="--part model"
        )
    name, node = generators[0]
    prefix = f"parts.{name}.generator."
    generator = {
        key.removeprefix(prefix): tensor for key, tensor in own.items() if key.startswith(prefix)
    }
    head = {
        f"heads.mlm.{key.removeprefix('head.')}": tensor
        for key, tensor in generator.items()
        if key.startswith("head.")
    }
    backbone = {key: tensor for key, tensor in generator.items() if key.startswith("backbone.")}
    shared = tuple(f"backbone.{path}." for path in SHARED[node["tied"]])
    backbone |= {key: tensor for key, tensor in tensors.items() if key.startswith(shared)}
    return _config(
        config, node, table_width=backbone["backbone.embedding.token.weight"].shape[1]
    ), {**backbone, **head}


def _config(config: Config, node: Node, *, table_width: int) -> Node:
    """The nodes of the model, with the generator's own numbers."""
    numbers, stack = node["_given_"], node["backbone"]["stack"]
    cells = {letter: dict(cell) for letter, cell in stack["cells"].items()}
    cells["a"] |= {"num_heads": numbers["num_heads"]}
    cells["f"] |= {"inner_width": numbers["inner_width"]}
    model = {
        **{
            key: part
            for key, part in node["backbone"].items()
            if key not in ("position", "pattern")
        },
        "embedding": {**node["backbone"]["embedding"], "table_width": table_width},
        "stack": {**stack, "cells": cells},
    }
    return {
        "size": {**config["size"], **numbers},
        "position": config["position"],
        "pattern": node["backbone"]["pattern"],
        "model": model,
        "heads": {"mlm": {key: value for key, value in node["head"].items() if key != "_partial_"}},
    }
