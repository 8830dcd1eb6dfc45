"""The state of torch's random generators, which dropout and the samples of generators use; data
draws are counter-based and have no state.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from plmctl.core.batch import Batch


def seed_rank(seed: int, rank: int, step: int = 0) -> None:
    """Seed the generators of one rank so that no other (seed, rank, step) has the same numbers."""
    torch.manual_seed(
        int(np.random.SeedSequence([seed, rank, step]).generate_state(1, np.uint64)[0])
    )


def seed_batch(seed: int, batch: Batch) -> None:
    """Start the generators at the number of this batch, whatever was drawn before it."""
    key = int(batch.key[0]) if len(batch.key) else 0
    torch.manual_seed(int(np.random.SeedSequence([seed, abs(key)]).generate_state(1, np.uint64)[0]))


def random_state(device: torch.device) -> dict[str, Tensor]:
    """The states of the generators of the CPU and of `device`."""
    state = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def restore_random_state(state: dict[str, Tensor], device: torch.device) -> None:
    """Set the generators to a saved state."""
    torch.set_rng_state(state["cpu"])
    if "cuda" in state and device.type == "cuda":
        torch.cuda.set_rng_state(state["cuda"], device)


@contextmanager
def keep_random_state(device: torch.device) -> Iterator[None]:
    """Restore the generators at the end, whatever was drawn inside."""
    state = random_state(device)
    try:
        yield
    finally:
        restore_random_state(state, device)
