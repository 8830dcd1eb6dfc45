"""The costs of a fine-tuning besides time: weights that it trains, memory, bytes that it saves."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from plmctl.core.machine import measure_peak_memory
from plmctl.models.base import Model
from plmctl.nn.tables import count, real
from plmctl.storage.parts.kinds import measure_weights


@dataclass(frozen=True)
class Footprint:
    """Compares ways to adapt a model: few weights trained are few bytes saved."""

    trained: int  # weights
    parameters: int  # parameters of the whole model
    saved: int  # bytes of the weights in the checkpoint, without those of a base
    memory: int  # bytes at most: of the process, or on a graphics card of torch's allocations

    def describe(self) -> str:
        """One line for people."""
        return (
            f"{self.trained:,} of {self.parameters:,} weights trained,"
            f" {self.saved / 1e6:,.2f} MB saved, {self.memory / 1e6:,.0f} MB of memory at most"
        )

    def record(self) -> dict[str, int]:
        """For result.json."""
        return asdict(self)


def measure_footprint(model: Model, checkpoint: Path, device: torch.device) -> Footprint:
    """The footprint of a model as it was trained, frozen weights marked, and of its checkpoint.

    Args:
        model: after its training, in the process that trained it.
    """
    learns = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    on_card = device.type == "cuda"
    return Footprint(
        trained=sum(weight.numel() for weight in real(model, learns).values()),
        parameters=count(model),
        saved=measure_weights(checkpoint),
        memory=torch.cuda.max_memory_allocated(device) if on_card else measure_peak_memory(),
    )
