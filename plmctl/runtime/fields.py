"""The fields of a batch as tensors by name: `text.ids`, `text.length`, `text.tracks.segment`,
`anchors`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from plmctl.core.batch import Batch


def flatten(batch: Batch) -> dict[str, Tensor]:
    """The tensors of a batch by the names of their fields."""
    named: dict[str, Tensor] = {}
    for name, seq in batch.seqs.items():
        named |= {f"{name}.ids": seq.ids, f"{name}.length": seq.length}
        named |= {f"{name}.tracks.{track}": value for track, value in seq.tracks.items()}
    if batch.anchors is not None:
        named["anchors"] = batch.anchors
    for group in ("spans", "values"):
        named |= {f"{group}.{name}": value for name, value in getattr(batch, group).items()}
    return named


def unflatten(named: Mapping[str, Tensor], like: Batch) -> Batch:
    """A batch of these tensors, with the fields of `like`."""

    def group(prefix: str) -> dict[str, Tensor]:
        return {
            name.removeprefix(prefix): value
            for name, value in named.items()
            if name.startswith(prefix)
        }

    seqs = {
        name: replace(
            seq,
            ids=named[f"{name}.ids"],
            length=named[f"{name}.length"],
            tracks=group(f"{name}.tracks."),
            full=False,
        )
        for name, seq in like.seqs.items()
    }
    rows = next(iter(seqs.values())).ids.shape[0]
    return Batch(
        key=torch.arange(rows),
        seqs=seqs,
        anchors=named.get("anchors"),
        spans=group("spans."),
        values=group("values."),
        source=like.source,
    )


def double(batch: Batch) -> Batch:
    """The batch with each row twice, and with at least 2 tokens: sizes of 1 would be constants."""
    named, rows = flatten(batch), len(batch.key)
    twice = {name: torch.cat([value, value]) for name, value in named.items()}
    for name in twice:
        if name == "anchors" or name.startswith("spans."):  # they begin with the number of a row
            twice[name][len(named[name]) :, 0] += rows
        if (name.endswith(".ids") or ".tracks." in name) and twice[name].shape[1] == 1:
            twice[name] = torch.cat([twice[name], twice[name]], 1)
    return unflatten(twice, batch)
