"""The number type of the matrix products: fp32, or bf16/fp16 under autocast with fp32 weights,
norms, softmax and losses.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from plmctl.core.errors import ConfigError

NAMES = ("auto", "fp32", "bf16", "fp16")


@dataclass
class Precision:
    """`name` as resolved, and a loss scaler for fp16 (Micikevicius et al., 2018,
    arXiv:1710.03740).
    """

    name: str
    device: torch.device
    scaler: torch.amp.GradScaler | None = None

    @property
    def digits(self) -> int:
        """The number of significant digits in its results."""
        return 6 if self.name == "fp32" else 3

    @property
    def gathered(self) -> torch.dtype | None:
        """The type in which the divided weights of a cell are gathered; None: their own."""
        return torch.bfloat16 if self.name == "bf16" else None

    def autocast(self) -> AbstractContextManager[Any]:
        """The context in which forward passes run."""
        if self.name == "fp32":
            return nullcontext()
        return torch.autocast(
            self.device.type, dtype=torch.bfloat16 if self.name == "bf16" else torch.float16
        )

    def scale(self, loss: Tensor) -> Tensor:
        """The loss times the scale of fp16."""
        return loss if self.scaler is None else self.scaler.scale(loss)

    def unscale(self, optimizer: torch.optim.Optimizer) -> None:
        """Divide the gradients by the scale."""
        if self.scaler is not None:
            self.scaler.unscale_(optimizer)

    def update(self) -> None:
        """Adjust the scale after an update, also a skipped one: it falls after an overflow and
        grows after many good updates.
        """
        if self.scaler is not None:
            self.scaler.update()

    def state_dict(self) -> dict[str, Any]:
        """The state of the loss scaler."""
        return {} if self.scaler is None else self.scaler.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state of the loss scaler."""
        if self.scaler is not None and state:
            self.scaler.load_state_dict(state)


def choose(name: str, device: torch.device) -> Precision:
    """The precision of this name; `auto` is bf16 where the hardware multiplies it natively; else
    fp16 on a GPU and fp32 on a CPU.
    """
    if name not in NAMES:
        raise ConfigError("train.precision", name, f"one of {', '.join(NAMES)}")
    if name == "auto":
        if device.type == "cuda":
            name = "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp16"
        else:
            name = "bf16" if device.type == "cpu" and _cpu_multiplies_bf16() else "fp32"
    scaler = torch.amp.GradScaler(device.type) if name == "fp16" else None
    return Precision(name, device, scaler)


def _cpu_multiplies_bf16() -> bool:
    """AVX512-BF16 or AMX: elsewhere bf16 is emulated and slower than fp32."""
    return any(
        getattr(torch.cpu, f"_is_{probe}_supported", bool)()
        for probe in ("avx512_bf16", "amx_tile")
    )
