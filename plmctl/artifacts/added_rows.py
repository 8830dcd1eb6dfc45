"""Rows of tables that a checkpoint lacks, or whose numbers mean nothing."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from plmctl.artifacts.loading import Source
from plmctl.inputs.loaders import build_format
from plmctl.models.base import Model
from plmctl.nn.embeddings import Embedding
from plmctl.nn.tables import token_rows


def with_new_tokens(model: Model, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """`tensors` of a checkpoint with as many rows of tokens as `model` has: those it lacks are
    the model's first ones.
    """
    parameters, filled = dict(model.named_parameters(remove_duplicate=False)), dict(tensors)
    for name, rows in token_rows(model).items():
        table = tensors.get(name)
        if table is not None and len(table) < rows:
            new = parameters[name][len(table) : rows].detach()
            filled[name] = torch.cat([table, new.to(table)])
    return filled


def with_second_text(
    model: Model, source: Source, tensors: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """`tensors` in which the vector of a second text is that of the first one, if pretraining from
    nothing read rows of one text alone. It was drawn and never trained, and such noise would set
    the two texts apart more than their words do.
    """
    filled, config, vocab = dict(tensors), source.config, source.vocab
    format, begun = config.get("format") or {}, config.get("init") or config.get("task")
    if source.published or begun or vocab is None or "_target_" not in format:
        return filled
    if "tracks.segment" in build_format(config, vocab, source.plugins).provides:
        return filled
    for name, part in model.named_modules():
        table = filled.get(f"{name}.segment.weight") if isinstance(part, Embedding) else None
        if table is not None:
            filled[f"{name}.segment.weight"] = table[:1].expand_as(table).clone()
    return filled
