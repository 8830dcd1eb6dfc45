"""The ranges that quantisation-aware training has left in a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plmctl.config.build import build
from plmctl.core.terminal import WARN, remark
from plmctl.runtime.whole_numbers import TrainedRanges
from plmctl.storage.parts.kinds import read_kind

if TYPE_CHECKING:
    from plmctl.artifacts.loading import Source

STATE = "objective"  # the kind of tensors in a checkpoint that has them


def find_ranges(source: Source) -> TrainedRanges | None:
    """The ranges of a model that was trained with rounded inputs; None without any."""
    nodes = source.config.get("stabiliser") or {}
    state = read_kind(source.folder, STATE) if nodes else {}
    for name, node in nodes.items():
        part = build(node, {}, source.plugins, path=f"stabiliser.{name}")
        place = f"parts.{name}."
        own = {n.partition(place)[2]: tensor for n, tensor in state.items() if place in n}
        ranges: TrainedRanges | None = part.find_ranges(own)
        if ranges is not None and not ranges.inputs:
            file = f"{source.folder} has no {STATE}.safetensors"
            what = f"{file} with the ranges that stabiliser={name} trained"
            remark(f"{what}: new ones are measured; convert the run itself to keep them", WARN)
            return None
        if ranges is not None:
            return ranges
    return None
