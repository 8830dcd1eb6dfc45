"""Tables of sinusoids in published files, which are computed anew and not read."""

from __future__ import annotations

import torch

from plmctl.core.terminal import WARN, remark_once
from plmctl.interop.names import Weights
from plmctl.nn.positions import Sinusoidal

NEAR = 0.01  # half precision of a file, and more


def warn_of_other_waves(tables: Weights, **how: object) -> None:
    """Say which tables are no sinusoids, so that the model computes something else than the file.

    Args:
        tables: {name: [rows, width] a table that is not read}.
        how: The settings of `Sinusoidal` without the width.
    """
    for name, table in tables.items():
        waves = Sinusoidal(width=table.shape[1], **how)  # type: ignore[arg-type]
        own = waves.waves(torch.arange(len(table) - waves.first))
        largest = float((table[waves.first :] - own).abs().max())
        if largest > NEAR:
            remark_once(
                f"{name} is no table of sinusoids: it differs from them by up to {largest:.3g}; it"
                " is not read, and outputs differ from the published model's",
                WARN,
            )
