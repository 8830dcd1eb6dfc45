"""A hash that two models share exactly where they give the same answers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

import torch
from torch import Tensor

from plmctl.artifacts.loading import Source


def identity(source: Source) -> str:
    """A hash of everything that a model's answers depend on: its config, its weights and its
    tokenizer.
    """
    nodes = {
        name: source.config.get(name) for name in ("model", "position", "pattern", "size", "heads")
    }
    digest = hashlib.sha256(json.dumps(nodes, sort_keys=True, default=str).encode())
    _take(digest, source.tensors)
    digest.update(source.tokenizer.fingerprint.encode())
    return digest.hexdigest()


def hash_weights(tensors: Mapping[str, Tensor]) -> str:
    """A hash of the names and numbers of tensors."""
    digest = hashlib.sha256()
    _take(digest, tensors)
    return digest.hexdigest()


def _take(digest: hashlib._Hash, tensors: Mapping[str, Tensor]) -> None:
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        content = tensor.detach().cpu().contiguous().flatten()
        digest.update(content.view(torch.uint8).numpy().data)
