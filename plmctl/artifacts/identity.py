"""A hash that two models share exactly where they give the same answers."""

from __future__ import annotations

import hashlib
import json

import torch

from plmctl.artifacts.loading import Source


def identity(source: Source) -> str:
    """A hash of everything that a model's answers depend on: its config, its weights and its
    tokenizer.
    """
    nodes = {
        name: source.config.get(name) for name in ("model", "position", "pattern", "size", "heads")
    }
    digest = hashlib.sha256(json.dumps(nodes, sort_keys=True, default=str).encode())
    for name, tensor in sorted(source.tensors.items()):
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        digest.update(tensor.contiguous().flatten().view(torch.uint8).numpy().data)
    digest.update(source.tokenizer.fingerprint.encode())
    return digest.hexdigest()
